-- Version 3: views that answer whatever a row holds. A body may be written by a model, and one that could not be read, or one
-- number out of range, was the end of the views for all sessions. The views keep their names, columns and meaning.

-- What jsonb refuses is replaced: U+0000 and half surrogate pairs by U+FFFD, numbers beyond the range of numeric by null. What is
-- no JSON at all is null.
CREATE OR REPLACE FUNCTION event_json(body text) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE AS $$
DECLARE
    -- Stands for an escaped backslash, so that what follows one is not taken for an escape. JSON holds no such character.
    mark CONSTANT text := chr(1);
BEGIN
    IF strpos(body, '\u') > 0 THEN
        body := replace(body, '\\', mark);
        body := replace(body, '\u0000', '\ufffd');
        body := regexp_replace(body, '\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])', '\\ufffd', 'g');
        body := regexp_replace(body, '(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}', '\\ufffd', 'g');
        body := replace(body, mark, '\\');
    END IF;
    RETURN body::jsonb;
EXCEPTION WHEN OTHERS THEN
    BEGIN
        -- Strings are left as they are; between them are the numbers.
        RETURN (SELECT string_agg(CASE WHEN part.found[1] LIKE '"%' THEN part.found[1] ELSE regexp_replace(part.found[1],
                           '-?[0-9.]*(?:[0-9]{255}[0-9.]*(?:[eE][-+]?[0-9]+)?|[0-9][eE][-+]?[0-9]{4,})', 'null', 'g')
                       END, '' ORDER BY part.place)
                FROM regexp_matches(body, '"(?:[^"\\]|\\.)*"|[^"]+', 'g') WITH ORDINALITY AS part (found, place))::jsonb;
    EXCEPTION WHEN OTHERS THEN
        RETURN NULL;
    END;
END
$$;

-- A count that an event holds: as large as a column can hold at most, and null for anything else.
CREATE FUNCTION event_number(value jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN jsonb_typeof(value) = 'number' AND value #>> '{}' ~ '^[0-9]+$'
       THEN least((value #>> '{}')::numeric, 9223372036854775807)::bigint END
$$;

-- What was used and what was wasted, as far as either is known.
CREATE FUNCTION event_sum(used jsonb, wasted jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN count(*) > 0 THEN least(sum((part #>> '{}')::numeric), 9223372036854775807) END::bigint
FROM unnest(ARRAY[used, wasted]) AS part WHERE jsonb_typeof(part) = 'number' AND part #>> '{}' ~ '^[0-9]+$'
$$;

-- A sum as a column holds it.
CREATE FUNCTION event_total(total numeric) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN total IS NOT NULL THEN greatest(least(total, 9223372036854775807), -9223372036854775808) END::bigint
$$;

CREATE FUNCTION event_list(value jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN jsonb_typeof(value) = 'array' THEN value ELSE '[]' END
$$;

CREATE OR REPLACE VIEW model_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, json.body,
           (SELECT started.seq FROM events AS started
            WHERE started.session = finished.session AND started.seq < finished.seq
              AND started.kind = 'model_started' AND started.run = finished.run
              AND event_json(started.body) ->> 'request' IS NOT DISTINCT FROM json.body ->> 'request'
            ORDER BY started.seq DESC LIMIT 1) AS started
    FROM events AS finished
    CROSS JOIN LATERAL (SELECT event_json(finished.body) AS body OFFSET 0) AS json
    WHERE finished.kind = 'model_finished'
    UNION ALL
    SELECT begun.session, begun.run, begun.agent, begun.seq, NULL, NULL, begun.seq
    FROM events AS begun
    WHERE begun.kind = 'model_started'
      -- No end came before the next run's begin. (NOT EXISTS would let planners join all with all.)
      AND coalesce((SELECT later.kind FROM events AS later
                    WHERE later.session = begun.session AND later.seq > begun.seq
                      AND CASE WHEN later.kind IN ('model_started', 'model_finished') THEN
                              later.run = begun.run
                              AND event_json(later.body) ->> 'request'
                                  IS NOT DISTINCT FROM event_json(begun.body) ->> 'request'
                          ELSE later.kind = 'run_started' END
                    ORDER BY later.seq LIMIT 1), 'run_started') = 'run_started'
)
SELECT calls.session, calls.run, calls.agent, calls.seq,
       coalesce(event_number(calls.body -> 'step'), event_number(started.body -> 'step')) AS step,
       coalesce((SELECT event_json(restart.body) #>> '{restart,provider}' FROM events AS restart
                 WHERE restart.session = calls.session AND restart.seq > calls.started AND restart.seq < calls.seq
                   AND restart.kind = 'model_restarted' AND restart.run = calls.run
                   AND event_json(restart.body) ->> 'request' = calls.body ->> 'request'
                   AND event_json(restart.body) #>> '{restart,provider}' IS NOT NULL
                 ORDER BY restart.seq DESC LIMIT 1),
                started.body ->> 'provider') AS provider,
       coalesce((SELECT event_json(restart.body) #>> '{restart,model}' FROM events AS restart
                 WHERE restart.session = calls.session AND restart.seq > calls.started AND restart.seq < calls.seq
                   AND restart.kind = 'model_restarted' AND restart.run = calls.run
                   AND event_json(restart.body) ->> 'request' = calls.body ->> 'request'
                   AND event_json(restart.body) #>> '{restart,model}' IS NOT NULL
                 ORDER BY restart.seq DESC LIMIT 1),
                started.body ->> 'model') AS model,
       calls.body ->> 'model' AS reported_model,
       CASE WHEN calls.finished_at IS NOT NULL THEN coalesce(event_number(calls.body -> 'attempt'), 1) END AS attempts,
       started.at AS started_at, calls.finished_at, event_number(calls.body -> 'micros') AS micros,
       calls.body #>> '{finish,reason}' AS finish,
       event_sum(calls.body #> '{usage,input}', calls.body #> '{wasted,input}') AS input_tokens,
       event_sum(calls.body #> '{usage,output}', calls.body #> '{wasted,output}') AS output_tokens,
       event_sum(calls.body #> '{usage,cache_read}', calls.body #> '{wasted,cache_read}') AS cache_read_tokens,
       event_sum(calls.body #> '{usage,cache_write}', calls.body #> '{wasted,cache_write}') AS cache_write_tokens,
       event_sum(calls.body #> '{usage,reasoning}', calls.body #> '{wasted,reasoning}') AS reasoning_tokens,
       event_number(calls.body -> 'cost') AS cost_pico,
       calls.body #>> '{error,kind}' AS error,
       calls.body #>> '{error,message}' AS error_message
FROM calls
LEFT JOIN LATERAL (SELECT begun.at, event_json(begun.body) AS body FROM events AS begun
                   WHERE begun.session = calls.session AND begun.seq = calls.started OFFSET 0) AS started ON true;

CREATE OR REPLACE VIEW tool_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, json.body,
           event_number(json.body -> 'index') AS place, json.body #>> '{result,call}' AS call,
           json.body #>> '{result,name}' AS tool,
           -- What came last before the result: the claim of this call, or the reply that asked for it.
           (SELECT started.seq FROM events AS started
            WHERE started.session = finished.session AND started.seq < finished.seq AND started.run = finished.run
              AND CASE started.kind
                      WHEN 'tool_started' THEN
                          event_json(started.body) -> 'index' = json.body -> 'index'
                          AND event_json(started.body) #> '{key,ordinal}' IS NOT DISTINCT FROM json.body #> '{key,ordinal}'
                      WHEN 'model_finished' THEN
                          json.body -> 'key' IS NULL
                          AND event_json(started.body) -> 'key' IS NULL
                      ELSE started.kind = 'run_started'
                  END
            ORDER BY started.seq DESC LIMIT 1) AS started,
           json.body -> 'key' IS NULL AS asked
    FROM events AS finished
    CROSS JOIN LATERAL (SELECT event_json(finished.body) AS body OFFSET 0) AS json
    WHERE finished.kind = 'tool_finished'
    UNION ALL
    SELECT begun.session, begun.run, begun.agent, begun.seq, NULL, NULL,
           event_number(json.body -> 'index'), json.body ->> 'call', json.body ->> 'tool', begun.seq,
           json.body -> 'key' IS NULL
    FROM events AS begun
    CROSS JOIN LATERAL (SELECT event_json(begun.body) AS body OFFSET 0) AS json
    WHERE begun.kind = 'tool_started'
      AND coalesce((SELECT later.kind FROM events AS later
                    WHERE later.session = begun.session AND later.seq > begun.seq
                      AND CASE WHEN later.kind = 'model_finished' THEN
                              json.body -> 'key' IS NULL
                              AND event_json(later.body) -> 'key' IS NULL
                          WHEN later.kind IN ('tool_started', 'tool_finished') THEN
                              event_json(later.body) -> 'index' = json.body -> 'index'
                              AND event_json(later.body) #> '{key,ordinal}'
                                  IS NOT DISTINCT FROM json.body #> '{key,ordinal}'
                          ELSE later.kind = 'run_started' END
                    ORDER BY later.seq LIMIT 1), 'run_started') IN ('run_started', 'model_finished')
)
SELECT calls.session, calls.run, calls.agent, calls.seq, reply.seq AS message, calls.place,
       calls.session || '.' || reply.seq || '$$' || calls.place AS id,
       calls.call, calls.tool,
       (SELECT part.value #>> '{tool_call,arguments}'
        FROM jsonb_array_elements(event_list(reply.body #> '{message,parts}')) AS part
        WHERE part.value #>> '{tool_call,id}' = calls.call LIMIT 1) AS arguments,
       started.body ->> 'allowed_by' AS allowed_by,
       CASE WHEN calls.finished_at IS NULL THEN 'unfinished'
            WHEN calls.body -> 'denied' = 'true' THEN 'denied'
            WHEN calls.body #> '{result,is_error}' = 'true' THEN 'failed'
            ELSE 'succeeded' END AS status,
       started.at AS started_at, calls.finished_at, event_number(calls.body -> 'micros') AS micros,
       (SELECT string_agg(part.value ->> 'text', chr(10) ORDER BY part.place)
        FROM jsonb_array_elements(event_list(calls.body #> '{result,content}')) WITH ORDINALITY AS part (value, place)) AS output
FROM calls
LEFT JOIN LATERAL (SELECT said.seq, event_json(said.body) AS body FROM events AS said
                   WHERE calls.asked AND said.session = calls.session AND said.seq < calls.seq
                     AND said.kind = 'model_finished'
                     AND event_json(said.body) -> 'key' IS NULL
                   ORDER BY said.seq DESC LIMIT 1) AS reply ON true
LEFT JOIN LATERAL (SELECT begun.at, event_json(begun.body) AS body FROM events AS begun
                   WHERE begun.session = calls.session AND begun.seq = calls.started
                     AND begun.kind = 'tool_started' OFFSET 0) AS started ON true;

CREATE OR REPLACE VIEW messages AS
WITH said AS (
    SELECT said.session, said.run, said.agent, said.seq, said.at, said.kind,
           CASE said.kind
               WHEN 'run_started' THEN json.body -> 'prompt'
               WHEN 'compacted' THEN json.body -> 'summary'
               WHEN 'tool_finished' THEN jsonb_build_object('role', 'tool', 'parts', jsonb_build_array(
                   jsonb_build_object('tool_result', json.body -> 'result')))
               WHEN 'run_finished' THEN jsonb_build_object('role', 'assistant', 'parts', jsonb_build_array(
                   jsonb_build_object('text', json.body #> '{outcome,text}')))
               ELSE json.body -> 'message'
           END AS message
    FROM events AS said
    CROSS JOIN LATERAL (SELECT event_json(said.body) AS body OFFSET 0) AS json
    WHERE said.kind IN ('run_started', 'message_added', 'compacted', 'model_finished', 'tool_finished', 'run_finished')
      AND CASE said.kind
              WHEN 'model_finished' THEN json.body -> 'key' IS NULL
              WHEN 'tool_finished' THEN json.body -> 'key' IS NULL
              -- The answer of an agent whose model calls, if any, are no part of the conversation.
              WHEN 'run_finished' THEN
                  json.body #>> '{outcome,status}' = 'completed' AND json.body #>> '{outcome,text}' <> ''
                  AND 'run_started' = (SELECT before.kind FROM events AS before
                                       WHERE before.session = said.session AND before.seq < said.seq
                                         AND before.run = said.run
                                         AND CASE before.kind
                                                 WHEN 'model_finished' THEN
                                                     event_json(before.body) -> 'key' IS NULL
                                                 ELSE before.kind = 'run_started'
                                             END
                                       ORDER BY before.seq DESC LIMIT 1)
              ELSE true
          END
)
SELECT session, run, agent, seq, at, kind, message ->> 'role' AS role,
       coalesce((SELECT string_agg(part.value ->> 'text', '' ORDER BY part.place)
                 FROM jsonb_array_elements(event_list(message -> 'parts')) WITH ORDINALITY AS part (value, place)),
                (SELECT string_agg(part.value ->> 'text', chr(10) ORDER BY part.place)
                 FROM jsonb_array_elements(event_list(message #> '{parts,0,tool_result,content}'))
                      WITH ORDINALITY AS part (value, place)),
                '') AS text,
       (message -> 'parts')::text AS parts
FROM said
WHERE jsonb_array_length(event_list(message -> 'parts')) > 0;

CREATE OR REPLACE VIEW approvals AS
WITH asked AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, events.kind, json.body ->> 'id' AS id,
           json.body ->> 'tool' AS tool, json.body ->> 'arguments' AS arguments, json.body ->> 'rule' AS rule,
           json.body ->> 'decision' AS decision
    FROM events
    CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('approval_requested', 'approval_decided')
)
SELECT session, id, min(run) AS run, min(agent) AS agent, min(seq) AS seq, min(tool) AS tool,
       min(arguments) AS arguments, min(rule) AS rule,
       coalesce(max(CASE WHEN decision <> 'later' THEN decision END), max(decision)) AS decision,
       min(CASE WHEN kind = 'approval_requested' THEN at END) AS asked_at,
       max(CASE WHEN kind = 'approval_decided' THEN at END) AS decided_at,
       event_total(max(CASE WHEN kind = 'approval_decided' THEN at END)::numeric
           - min(CASE WHEN kind = 'approval_requested' THEN at END)) AS micros
FROM asked GROUP BY session, id;

CREATE OR REPLACE VIEW agent_executions AS
WITH marks AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, events.kind,
           (SELECT string_agg(part.value ->> 'text', '' ORDER BY part.place)
            FROM jsonb_array_elements(event_list(json.body #> '{prompt,parts}')) WITH ORDINALITY AS part (value, place)) AS prompt,
           event_number(json.body -> 'count') AS resumed,
           CASE jsonb_typeof(json.body #> '{outcome,status}')
               WHEN 'string' THEN json.body #>> '{outcome,status}'
               WHEN 'object' THEN (SELECT min(word) FROM jsonb_object_keys(json.body #> '{outcome,status}') AS word)
           END AS status,
           coalesce(json.body #>> '{outcome,status,failed,kind}',
                    CASE jsonb_typeof(json.body #> '{outcome,status,stopped}')
                        WHEN 'string' THEN json.body #>> '{outcome,status,stopped}'
                        WHEN 'object' THEN
                            (SELECT min(word) FROM jsonb_object_keys(json.body #> '{outcome,status,stopped}') AS word)
                    END,
                    CASE jsonb_typeof(json.body -> 'pause')
                        WHEN 'string' THEN json.body ->> 'pause'
                        WHEN 'object' THEN (SELECT min(word) FROM jsonb_object_keys(json.body -> 'pause') AS word)
                    END) AS reason,
           json.body #>> '{outcome,status,failed,message}' AS error_message,
           json.body #>> '{outcome,text}' AS answer,
           event_sum(json.body #> '{usage,input}', json.body #> '{wasted,input}') AS input_tokens,
           event_sum(json.body #> '{usage,output}', json.body #> '{wasted,output}') AS output_tokens,
           event_number(json.body -> 'cost') AS cost_pico
    FROM events
    CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('run_started', 'run_resumed', 'run_paused', 'run_finished', 'model_finished')
),
runs AS (
    SELECT session, run, min(agent) AS agent, min(seq) AS seq, max(prompt) AS prompt, max(status) AS status,
           max(CASE WHEN kind = 'run_finished' THEN reason END) AS ended, max(error_message) AS error_message,
           -- The newest pause's: numbers of one length sort as text.
           substr(max(CASE WHEN kind = 'run_paused' THEN lpad(seq::text, 19, '0') || reason END), 20) AS pause,
           max(CASE WHEN kind = 'run_paused' THEN seq END) AS paused_seq,
           max(CASE WHEN kind IN ('run_started', 'run_resumed') THEN seq END) AS begun_seq,
           coalesce(max(resumed), 0) AS resumed, max(answer) AS answer,
           min(CASE WHEN kind = 'run_started' THEN at END) AS started_at,
           max(CASE WHEN kind = 'run_finished' THEN at END) AS finished_at,
           count(CASE WHEN kind = 'model_finished' THEN 1 END) AS steps,
           event_total(sum(input_tokens)) AS input_tokens, event_total(sum(output_tokens)) AS output_tokens,
           CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
                THEN event_total(coalesce(sum(cost_pico), 0)) END AS cost_pico
    FROM marks GROUP BY session, run
)
SELECT session, run, agent, seq, prompt,
       CASE WHEN status IS NOT NULL THEN status WHEN paused_seq > begun_seq THEN 'paused' ELSE 'running' END AS status,
       CASE WHEN status IS NOT NULL THEN ended WHEN paused_seq > begun_seq THEN pause END AS reason,
       error_message, answer, resumed, started_at, finished_at, event_total(finished_at::numeric - started_at) AS micros,
       steps, input_tokens, output_tokens, cost_pico
FROM runs;

CREATE OR REPLACE VIEW tasks AS
SELECT runs.session, sessions.parent, sessions.role, runs.run, runs.agent, runs.prompt, runs.status, runs.reason,
       runs.error_message, runs.answer, runs.resumed, runs.started_at, runs.finished_at, runs.micros, runs.steps,
       runs.input_tokens, runs.output_tokens, runs.cost_pico
FROM agent_executions AS runs JOIN sessions ON sessions.id = runs.session
WHERE sessions.parent IS NOT NULL;

CREATE OR REPLACE VIEW agents AS
WITH facts AS (
    SELECT events.agent, events.session, events.kind, events.at, json.body ->> 'agent' AS name,
           event_sum(json.body #> '{usage,input}', json.body #> '{wasted,input}') AS input_tokens,
           event_sum(json.body #> '{usage,output}', json.body #> '{wasted,output}') AS output_tokens,
           event_number(json.body -> 'cost') AS cost_pico
    FROM events
    CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('run_started', 'model_finished')
)
SELECT agent, max(name) AS name, count(DISTINCT session) AS sessions,
       count(CASE WHEN kind = 'run_started' THEN 1 END) AS runs,
       count(CASE WHEN kind = 'model_finished' THEN 1 END) AS model_calls,
       event_total(sum(input_tokens)) AS input_tokens, event_total(sum(output_tokens)) AS output_tokens,
       CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
            THEN event_total(coalesce(sum(cost_pico), 0)) END AS cost_pico,
       min(at) AS first_at, max(at) AS last_at
FROM facts GROUP BY agent;

CREATE OR REPLACE VIEW agent_plans AS
WITH lists AS (
    SELECT session, run, agent, seq, at, body, max(seq) OVER (PARTITION BY session) AS newest
    FROM events WHERE kind = 'todos_changed'
)
SELECT lists.session, lists.run, lists.agent, lists.seq, lists.at, item.place - 1 AS place,
       item.value ->> 'content' AS content, item.value ->> 'status' AS status,
       item.value ->> 'active_form' AS active_form,
       CASE WHEN lists.seq = lists.newest THEN 1 ELSE 0 END AS latest
FROM lists, jsonb_array_elements(event_list(event_json(lists.body) -> 'todos'))
            WITH ORDINALITY AS item (value, place);

CREATE OR REPLACE VIEW agent_chat_sessions AS
SELECT id AS session, title, agent, status, run, messages, created, updated
FROM sessions WHERE parent IS NULL;

CREATE OR REPLACE VIEW agent_chat_messages AS
SELECT messages.session, messages.run, messages.agent, messages.seq, messages.at, messages.role, messages.text
FROM messages JOIN sessions ON sessions.id = messages.session
WHERE sessions.parent IS NULL AND messages.role IN ('user', 'assistant') AND messages.kind <> 'compacted'
  AND messages.text <> '';

CREATE OR REPLACE VIEW session_totals AS
WITH RECURSIVE below (top, id) AS (
    SELECT parent, id FROM sessions WHERE parent IS NOT NULL
    UNION ALL
    SELECT below.top, child.id FROM below JOIN sessions AS child ON child.parent = below.id
),
sums AS (
    SELECT below.top, count(*) AS sessions, event_total(sum(input_tokens)) AS input_tokens,
           event_total(sum(output_tokens)) AS output_tokens,
           CASE WHEN count(*) = count(cost_pico) THEN event_total(sum(cost_pico)) END AS cost_pico
    FROM below JOIN sessions ON sessions.id = below.id GROUP BY below.top
)
SELECT own.id AS session, own.parent, coalesce(sums.sessions, 0) AS descendants,
       own.input_tokens AS own_input_tokens, own.output_tokens AS own_output_tokens, own.cost_pico AS own_cost_pico,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.input_tokens END AS descendants_input_tokens,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.output_tokens END AS descendants_output_tokens,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.cost_pico END AS descendants_cost_pico,
       event_total(coalesce(own.input_tokens::numeric + sums.input_tokens, own.input_tokens, sums.input_tokens)) AS total_input_tokens,
       event_total(coalesce(own.output_tokens::numeric + sums.output_tokens, own.output_tokens, sums.output_tokens)) AS total_output_tokens,
       event_total(own.cost_pico::numeric + CASE WHEN sums.top IS NULL THEN 0 ELSE sums.cost_pico END) AS total_cost_pico
FROM sessions AS own LEFT JOIN sums ON sums.top = own.id;
