-- Version 2: views over the events. README.md documents them. They have the same names, columns and meaning as those
-- for SQLite: change both. Where an event's neighbours are looked up, the search begins at the event and ends after a
-- few rows, so that long sessions stay cheap.
--
-- jsonb cannot hold the character U+0000, which tools may well return, nor half a surrogate pair, which a model may
-- well write: here U+FFFD stands for them. OFFSET 0 keeps the planner from parsing a body once for each column.
CREATE FUNCTION event_json(body text) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE WHEN strpos(body, '\ud') = 0 AND strpos(body, '\uD') = 0 THEN replace(body, '\u0000', '\ufffd')
       ELSE regexp_replace(
           regexp_replace(replace(body, '\u0000', '\ufffd'),
               '\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])', '\\ufffd', 'g'),
           '(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}', '\\ufffd', 'g')
       END::jsonb
$$;

-- The views look for a few kinds of events, and long sessions are mostly made of others.
CREATE INDEX events_by_kind ON events (kind, session, seq);

CREATE VIEW clock AS
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) AS now;

CREATE VIEW model_calls AS
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
       coalesce((calls.body ->> 'step')::bigint, (started.body ->> 'step')::bigint) AS step,
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
       CASE WHEN calls.body IS NOT NULL THEN coalesce((calls.body ->> 'attempt')::bigint, 1) END AS attempts,
       started.at AS started_at, calls.finished_at, (calls.body ->> 'micros')::bigint AS micros,
       calls.body #>> '{finish,reason}' AS finish,
       coalesce((calls.body #>> '{usage,input}')::bigint + (calls.body #>> '{wasted,input}')::bigint,
                (calls.body #>> '{usage,input}')::bigint, (calls.body #>> '{wasted,input}')::bigint) AS input_tokens,
       coalesce((calls.body #>> '{usage,output}')::bigint + (calls.body #>> '{wasted,output}')::bigint,
                (calls.body #>> '{usage,output}')::bigint, (calls.body #>> '{wasted,output}')::bigint) AS output_tokens,
       coalesce((calls.body #>> '{usage,cache_read}')::bigint + (calls.body #>> '{wasted,cache_read}')::bigint,
                (calls.body #>> '{usage,cache_read}')::bigint,
                (calls.body #>> '{wasted,cache_read}')::bigint) AS cache_read_tokens,
       coalesce((calls.body #>> '{usage,cache_write}')::bigint + (calls.body #>> '{wasted,cache_write}')::bigint,
                (calls.body #>> '{usage,cache_write}')::bigint,
                (calls.body #>> '{wasted,cache_write}')::bigint) AS cache_write_tokens,
       coalesce((calls.body #>> '{usage,reasoning}')::bigint + (calls.body #>> '{wasted,reasoning}')::bigint,
                (calls.body #>> '{usage,reasoning}')::bigint,
                (calls.body #>> '{wasted,reasoning}')::bigint) AS reasoning_tokens,
       (calls.body ->> 'cost')::bigint AS cost_pico,
       calls.body #>> '{error,kind}' AS error,
       calls.body #>> '{error,message}' AS error_message
FROM calls
LEFT JOIN LATERAL (SELECT begun.at, event_json(begun.body) AS body FROM events AS begun
                   WHERE begun.session = calls.session AND begun.seq = calls.started OFFSET 0) AS started ON true;

CREATE VIEW tool_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, json.body,
           (json.body ->> 'index')::bigint AS place, json.body #>> '{result,call}' AS call,
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
           (json.body ->> 'index')::bigint, json.body ->> 'call', json.body ->> 'tool', begun.seq,
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
        FROM jsonb_array_elements(reply.body #> '{message,parts}') AS part
        WHERE part.value #>> '{tool_call,id}' = calls.call LIMIT 1) AS arguments,
       started.body ->> 'allowed_by' AS allowed_by,
       CASE WHEN calls.body IS NULL THEN 'unfinished'
            WHEN (calls.body ->> 'denied')::boolean THEN 'denied'
            WHEN (calls.body #>> '{result,is_error}')::boolean THEN 'failed'
            ELSE 'succeeded' END AS status,
       started.at AS started_at, calls.finished_at, (calls.body ->> 'micros')::bigint AS micros,
       (SELECT string_agg(part.value ->> 'text', chr(10) ORDER BY part.place)
        FROM jsonb_array_elements(calls.body #> '{result,content}') WITH ORDINALITY AS part (value, place)) AS output
FROM calls
LEFT JOIN LATERAL (SELECT said.seq, event_json(said.body) AS body FROM events AS said
                   WHERE calls.asked AND said.session = calls.session AND said.seq < calls.seq
                     AND said.kind = 'model_finished'
                     AND event_json(said.body) -> 'key' IS NULL
                   ORDER BY said.seq DESC LIMIT 1) AS reply ON true
LEFT JOIN LATERAL (SELECT begun.at, event_json(begun.body) AS body FROM events AS begun
                   WHERE begun.session = calls.session AND begun.seq = calls.started
                     AND begun.kind = 'tool_started' OFFSET 0) AS started ON true;

CREATE VIEW messages AS
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
                 FROM jsonb_array_elements(message -> 'parts') WITH ORDINALITY AS part (value, place)),
                (SELECT string_agg(part.value ->> 'text', chr(10) ORDER BY part.place)
                 FROM jsonb_array_elements(message #> '{parts,0,tool_result,content}')
                      WITH ORDINALITY AS part (value, place)),
                '') AS text,
       (message -> 'parts')::text AS parts
FROM said
WHERE jsonb_array_length(message -> 'parts') > 0;

CREATE VIEW approvals AS
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
       max(CASE WHEN kind = 'approval_decided' THEN at END)
           - min(CASE WHEN kind = 'approval_requested' THEN at END) AS micros
FROM asked GROUP BY session, id;

CREATE VIEW agent_executions AS
WITH marks AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, events.kind,
           (SELECT string_agg(part.value ->> 'text', '' ORDER BY part.place)
            FROM jsonb_array_elements(json.body #> '{prompt,parts}') WITH ORDINALITY AS part (value, place)) AS prompt,
           (json.body ->> 'count')::bigint AS resumed,
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
           coalesce((json.body #>> '{usage,input}')::bigint + (json.body #>> '{wasted,input}')::bigint,
                    (json.body #>> '{usage,input}')::bigint, (json.body #>> '{wasted,input}')::bigint) AS input_tokens,
           coalesce((json.body #>> '{usage,output}')::bigint + (json.body #>> '{wasted,output}')::bigint,
                    (json.body #>> '{usage,output}')::bigint,
                    (json.body #>> '{wasted,output}')::bigint) AS output_tokens,
           (json.body ->> 'cost')::bigint AS cost_pico
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
           sum(input_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens,
           CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
                THEN coalesce(sum(cost_pico), 0)::bigint END AS cost_pico
    FROM marks GROUP BY session, run
)
SELECT session, run, agent, seq, prompt,
       CASE WHEN status IS NOT NULL THEN status WHEN paused_seq > begun_seq THEN 'paused' ELSE 'running' END AS status,
       CASE WHEN status IS NOT NULL THEN ended WHEN paused_seq > begun_seq THEN pause END AS reason,
       error_message, answer, resumed, started_at, finished_at, finished_at - started_at AS micros,
       steps, input_tokens, output_tokens, cost_pico
FROM runs;

CREATE VIEW tasks AS
SELECT runs.session, sessions.parent, sessions.role, runs.run, runs.agent, runs.prompt, runs.status, runs.reason,
       runs.error_message, runs.answer, runs.resumed, runs.started_at, runs.finished_at, runs.micros, runs.steps,
       runs.input_tokens, runs.output_tokens, runs.cost_pico
FROM agent_executions AS runs JOIN sessions ON sessions.id = runs.session
WHERE sessions.parent IS NOT NULL;

CREATE VIEW agents AS
WITH facts AS (
    SELECT events.agent, events.session, events.kind, events.at, json.body ->> 'agent' AS name,
           coalesce((json.body #>> '{usage,input}')::bigint + (json.body #>> '{wasted,input}')::bigint,
                    (json.body #>> '{usage,input}')::bigint, (json.body #>> '{wasted,input}')::bigint) AS input_tokens,
           coalesce((json.body #>> '{usage,output}')::bigint + (json.body #>> '{wasted,output}')::bigint,
                    (json.body #>> '{usage,output}')::bigint,
                    (json.body #>> '{wasted,output}')::bigint) AS output_tokens,
           (json.body ->> 'cost')::bigint AS cost_pico
    FROM events
    CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('run_started', 'model_finished')
)
SELECT agent, max(name) AS name, count(DISTINCT session) AS sessions,
       count(CASE WHEN kind = 'run_started' THEN 1 END) AS runs,
       count(CASE WHEN kind = 'model_finished' THEN 1 END) AS model_calls,
       sum(input_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens,
       CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
            THEN coalesce(sum(cost_pico), 0)::bigint END AS cost_pico,
       min(at) AS first_at, max(at) AS last_at
FROM facts GROUP BY agent;

CREATE VIEW agent_plans AS
WITH lists AS (
    SELECT session, run, agent, seq, at, body, max(seq) OVER (PARTITION BY session) AS newest
    FROM events WHERE kind = 'todos_changed'
)
SELECT lists.session, lists.run, lists.agent, lists.seq, lists.at, item.place - 1 AS place,
       item.value ->> 'content' AS content, item.value ->> 'status' AS status,
       item.value ->> 'active_form' AS active_form,
       CASE WHEN lists.seq = lists.newest THEN 1 ELSE 0 END AS latest
FROM lists, jsonb_array_elements(event_json(lists.body) -> 'todos')
            WITH ORDINALITY AS item (value, place);

CREATE VIEW agent_chat_sessions AS
SELECT id AS session, title, agent, status, run, messages, created, updated
FROM sessions WHERE parent IS NULL;

CREATE VIEW agent_chat_messages AS
SELECT messages.session, messages.run, messages.agent, messages.seq, messages.at, messages.role, messages.text
FROM messages JOIN sessions ON sessions.id = messages.session
WHERE sessions.parent IS NULL AND messages.role IN ('user', 'assistant') AND messages.kind <> 'compacted'
  AND messages.text <> '';

CREATE VIEW session_totals AS
WITH RECURSIVE below (top, id) AS (
    SELECT parent, id FROM sessions WHERE parent IS NOT NULL
    UNION ALL
    SELECT below.top, child.id FROM below JOIN sessions AS child ON child.parent = below.id
),
sums AS (
    SELECT below.top, count(*) AS sessions, sum(input_tokens)::bigint AS input_tokens,
           sum(output_tokens)::bigint AS output_tokens,
           CASE WHEN count(*) = count(cost_pico) THEN sum(cost_pico)::bigint END AS cost_pico
    FROM below JOIN sessions ON sessions.id = below.id GROUP BY below.top
)
SELECT own.id AS session, own.parent, coalesce(sums.sessions, 0) AS descendants,
       own.input_tokens AS own_input_tokens, own.output_tokens AS own_output_tokens, own.cost_pico AS own_cost_pico,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.input_tokens END AS descendants_input_tokens,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.output_tokens END AS descendants_output_tokens,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.cost_pico END AS descendants_cost_pico,
       coalesce(own.input_tokens + sums.input_tokens, own.input_tokens, sums.input_tokens) AS total_input_tokens,
       coalesce(own.output_tokens + sums.output_tokens, own.output_tokens, sums.output_tokens) AS total_output_tokens,
       own.cost_pico + CASE WHEN sums.top IS NULL THEN 0 ELSE sums.cost_pico END AS total_cost_pico
FROM sessions AS own LEFT JOIN sums ON sums.top = own.id;
