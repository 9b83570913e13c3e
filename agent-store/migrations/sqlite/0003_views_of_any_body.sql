-- Version 3: views that answer whatever a row holds. One body that could not be read, or numbers whose sum is beyond the range
-- of integers, was the end of the views for all sessions. The views keep their names, columns and meaning.

PRAGMA user_version = 3;

-- The body as the views read it: null if it is no JSON. Computed where it is read, never stored.
ALTER TABLE events ADD COLUMN json_body TEXT GENERATED ALWAYS AS (CASE WHEN json_valid(body) THEN body END) VIRTUAL;

-- Parts of a body are looked into where they are objects, and counted where they are whole numbers. Sums are taken in two halves,
-- thousand millions and what is left, because sum() fails where it overflows; what is too large is the largest integer.
DROP VIEW session_totals;
DROP VIEW agent_chat_messages;
DROP VIEW agent_chat_sessions;
DROP VIEW agent_plans;
DROP VIEW agents;
DROP VIEW tasks;
DROP VIEW agent_executions;
DROP VIEW approvals;
DROP VIEW messages;
DROP VIEW tool_calls;
DROP VIEW model_calls;

CREATE VIEW model_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, finished.json_body,
           (SELECT started.seq FROM events AS started
            WHERE started.session = finished.session AND started.seq < finished.seq
              AND started.kind = 'model_started' AND started.run = finished.run
              AND json_extract(started.json_body, '$.request') IS json_extract(finished.json_body, '$.request')
            ORDER BY started.seq DESC LIMIT 1) AS started
    FROM events AS finished
    WHERE finished.kind = 'model_finished'
    UNION ALL
    SELECT begun.session, begun.run, begun.agent, begun.seq, NULL, NULL, begun.seq
    FROM events AS begun
    WHERE begun.kind = 'model_started'
      -- No end came before the next run's begin. (NOT EXISTS would let planners join all with all.)
      AND coalesce((SELECT later.kind FROM events AS later
                    WHERE later.session = begun.session AND later.seq > begun.seq
                      AND (later.kind = 'run_started'
                           OR later.kind IN ('model_started', 'model_finished') AND later.run = begun.run
                           AND json_extract(later.json_body, '$.request') IS json_extract(begun.json_body, '$.request'))
                    ORDER BY later.seq LIMIT 1), 'run_started') = 'run_started'
)
SELECT calls.session, calls.run, calls.agent, calls.seq,
       coalesce(json_extract(calls.json_body, '$.step'), json_extract(started.json_body, '$.step')) AS step,
       coalesce((SELECT json_extract(restart.json_body, '$.restart.provider') FROM events AS restart
                 WHERE restart.session = calls.session AND restart.seq > calls.started AND restart.seq < calls.seq
                   AND restart.kind = 'model_restarted' AND restart.run = calls.run
                   AND json_extract(restart.json_body, '$.request') IS json_extract(calls.json_body, '$.request')
                   AND json_extract(restart.json_body, '$.restart.provider') IS NOT NULL
                 ORDER BY restart.seq DESC LIMIT 1),
                json_extract(started.json_body, '$.provider')) AS provider,
       coalesce((SELECT json_extract(restart.json_body, '$.restart.model') FROM events AS restart
                 WHERE restart.session = calls.session AND restart.seq > calls.started AND restart.seq < calls.seq
                   AND restart.kind = 'model_restarted' AND restart.run = calls.run
                   AND json_extract(restart.json_body, '$.request') IS json_extract(calls.json_body, '$.request')
                   AND json_extract(restart.json_body, '$.restart.model') IS NOT NULL
                 ORDER BY restart.seq DESC LIMIT 1),
                json_extract(started.json_body, '$.model')) AS model,
       json_extract(calls.json_body, '$.model') AS reported_model,
       CASE WHEN calls.finished_at IS NOT NULL THEN coalesce(json_extract(calls.json_body, '$.attempt'), 1) END AS attempts,
       started.at AS started_at, calls.finished_at, json_extract(calls.json_body, '$.micros') AS micros,
       json_extract(calls.json_body, '$.finish.reason') AS finish,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.input') END
                    + CASE json_type(calls.json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.input') END,
                    CASE json_type(calls.json_body, '$.usage.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.input') END,
                    CASE json_type(calls.json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.input') END),
           9223372036854775807) AS input_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.output') END
                    + CASE json_type(calls.json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.output') END,
                    CASE json_type(calls.json_body, '$.usage.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.output') END,
                    CASE json_type(calls.json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.output') END),
           9223372036854775807) AS output_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_read') END
                    + CASE json_type(calls.json_body, '$.wasted.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_read') END,
                    CASE json_type(calls.json_body, '$.usage.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_read') END,
                    CASE json_type(calls.json_body, '$.wasted.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_read') END),
           9223372036854775807) AS cache_read_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_write') END
                    + CASE json_type(calls.json_body, '$.wasted.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_write') END,
                    CASE json_type(calls.json_body, '$.usage.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_write') END,
                    CASE json_type(calls.json_body, '$.wasted.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_write') END),
           9223372036854775807) AS cache_write_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.reasoning') END
                    + CASE json_type(calls.json_body, '$.wasted.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.reasoning') END,
                    CASE json_type(calls.json_body, '$.usage.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.reasoning') END,
                    CASE json_type(calls.json_body, '$.wasted.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.reasoning') END),
           9223372036854775807) AS reasoning_tokens,
       min(CASE json_type(calls.json_body, '$.cost') WHEN 'integer' THEN json_extract(calls.json_body, '$.cost') END, 9223372036854775807) AS cost_pico,
       json_extract(calls.json_body, '$.error.kind') AS error,
       json_extract(calls.json_body, '$.error.message') AS error_message
FROM calls
LEFT JOIN events AS started ON started.session = calls.session AND started.seq = calls.started;

CREATE VIEW tool_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, finished.json_body,
           json_extract(finished.json_body, '$.index') AS place, json_extract(finished.json_body, '$.result.call') AS call,
           json_extract(finished.json_body, '$.result.name') AS tool,
           -- What came last before the result: the claim of this call, or the reply that asked for it.
           (SELECT started.seq FROM events AS started
            WHERE started.session = finished.session AND started.seq < finished.seq AND started.run = finished.run
              AND (started.kind = 'tool_started'
                   AND json_extract(started.json_body, '$.index') = json_extract(finished.json_body, '$.index')
                   AND json_extract(started.json_body, '$.key.ordinal') IS json_extract(finished.json_body, '$.key.ordinal')
                   OR started.kind = 'model_finished' AND json_extract(finished.json_body, '$.key') IS NULL
                   AND json_extract(started.json_body, '$.key') IS NULL
                   OR started.kind = 'run_started')
            ORDER BY started.seq DESC LIMIT 1) AS started,
           json_extract(finished.json_body, '$.key') IS NULL AS asked
    FROM events AS finished
    WHERE finished.kind = 'tool_finished'
    UNION ALL
    SELECT begun.session, begun.run, begun.agent, begun.seq, NULL, NULL,
           json_extract(begun.json_body, '$.index'), json_extract(begun.json_body, '$.call'), json_extract(begun.json_body, '$.tool'),
           begun.seq, json_extract(begun.json_body, '$.key') IS NULL
    FROM events AS begun
    WHERE begun.kind = 'tool_started'
      AND coalesce((SELECT later.kind FROM events AS later
                    WHERE later.session = begun.session AND later.seq > begun.seq
                      AND (later.kind = 'run_started'
                           OR later.kind = 'model_finished' AND json_extract(later.json_body, '$.key') IS NULL
                           AND json_extract(begun.json_body, '$.key') IS NULL
                           OR later.kind IN ('tool_started', 'tool_finished')
                           AND json_extract(later.json_body, '$.index') = json_extract(begun.json_body, '$.index')
                           AND json_extract(later.json_body, '$.key.ordinal') IS json_extract(begun.json_body, '$.key.ordinal'))
                    ORDER BY later.seq LIMIT 1), 'run_started') IN ('run_started', 'model_finished')
),
placed AS (
    SELECT calls.*,
           CASE WHEN asked THEN
               (SELECT reply.seq FROM events AS reply
                WHERE reply.session = calls.session AND reply.seq < calls.seq
                  AND reply.kind = 'model_finished' AND json_extract(reply.json_body, '$.key') IS NULL
                ORDER BY reply.seq DESC LIMIT 1) END AS message
    FROM calls
)
SELECT placed.session, placed.run, placed.agent, placed.seq, placed.message, placed.place,
       placed.session || '.' || placed.message || '$$' || placed.place AS id,
       placed.call, placed.tool,
       (SELECT CASE part.type WHEN 'object' THEN json_extract(part.value, '$.tool_call.arguments') END
        FROM json_each(reply.json_body, '$.message.parts') AS part
        WHERE CASE part.type WHEN 'object' THEN json_extract(part.value, '$.tool_call.id') END = placed.call LIMIT 1) AS arguments,
       json_extract(started.json_body, '$.allowed_by') AS allowed_by,
       CASE WHEN placed.finished_at IS NULL THEN 'unfinished'
            WHEN json_extract(placed.json_body, '$.denied') THEN 'denied'
            WHEN json_extract(placed.json_body, '$.result.is_error') THEN 'failed'
            ELSE 'succeeded' END AS status,
       CASE WHEN started.kind = 'tool_started' THEN started.at END AS started_at,
       placed.finished_at, json_extract(placed.json_body, '$.micros') AS micros,
       (SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, char(10))
        FROM json_each(placed.json_body, '$.result.content') AS part) AS output
FROM placed
LEFT JOIN events AS reply ON reply.session = placed.session AND reply.seq = placed.message
LEFT JOIN events AS started ON started.session = placed.session AND started.seq = placed.started;

CREATE VIEW messages AS
WITH said AS (
    SELECT session, run, agent, seq, at, kind,
           CASE kind
               WHEN 'run_started' THEN CASE json_type(json_body, '$.prompt') WHEN 'object' THEN json_extract(json_body, '$.prompt') END
               WHEN 'compacted' THEN CASE json_type(json_body, '$.summary') WHEN 'object' THEN json_extract(json_body, '$.summary') END
               WHEN 'tool_finished' THEN json_object('role', 'tool', 'parts', json_array(
                   json_object('tool_result', CASE json_type(json_body, '$.result') WHEN 'object' THEN json_extract(json_body, '$.result') END)))
               WHEN 'run_finished' THEN json_object('role', 'assistant', 'parts', json_array(
                   json_object('text', CASE json_type(json_body, '$.outcome.text') WHEN 'text' THEN json_extract(json_body, '$.outcome.text') END)))
               ELSE CASE json_type(json_body, '$.message') WHEN 'object' THEN json_extract(json_body, '$.message') END
           END AS message
    FROM events AS said
    WHERE kind IN ('run_started', 'message_added', 'compacted')
       OR kind IN ('model_finished', 'tool_finished') AND json_extract(json_body, '$.key') IS NULL
       -- The answer of an agent whose model calls, if any, are no part of the conversation.
       OR kind = 'run_finished' AND json_extract(json_body, '$.outcome.status') = 'completed'
          AND json_extract(json_body, '$.outcome.text') <> ''
          AND 'run_started' = (SELECT before.kind FROM events AS before
                               WHERE before.session = said.session AND before.seq < said.seq AND before.run = said.run
                                 AND (before.kind = 'run_started' OR before.kind = 'model_finished'
                                                                     AND json_extract(before.json_body, '$.key') IS NULL)
                               ORDER BY before.seq DESC LIMIT 1)
)
SELECT session, run, agent, seq, at, kind, json_extract(message, '$.role') AS role,
       coalesce((SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, '')
                 FROM json_each(message, '$.parts') AS part),
                (SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, char(10))
                 FROM json_each(message, '$.parts[0].tool_result.content') AS part),
                '') AS text,
       json_extract(message, '$.parts') AS parts
FROM said
WHERE json_array_length(message, '$.parts') > 0;

CREATE VIEW approvals AS
WITH asked AS (
    SELECT session, run, agent, seq, at, kind, json_extract(json_body, '$.id') AS id, json_extract(json_body, '$.tool') AS tool,
           json_extract(json_body, '$.arguments') AS arguments, json_extract(json_body, '$.rule') AS rule,
           json_extract(json_body, '$.decision') AS decision
    FROM events WHERE kind IN ('approval_requested', 'approval_decided')
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
    SELECT session, run, agent, seq, at, kind,
           (SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, '')
            FROM json_each(json_body, '$.prompt.parts') AS part) AS prompt,
           json_extract(json_body, '$.count') AS resumed,
           CASE json_type(json_body, '$.outcome.status')
               WHEN 'text' THEN json_extract(json_body, '$.outcome.status')
               WHEN 'object' THEN (SELECT word.key FROM json_each(json_body, '$.outcome.status') AS word)
           END AS status,
           coalesce(json_extract(json_body, '$.outcome.status.failed.kind'),
                    CASE json_type(json_body, '$.outcome.status.stopped')
                        WHEN 'text' THEN json_extract(json_body, '$.outcome.status.stopped')
                        WHEN 'object' THEN (SELECT word.key FROM json_each(json_body, '$.outcome.status.stopped') AS word)
                    END,
                    CASE json_type(json_body, '$.pause')
                        WHEN 'text' THEN json_extract(json_body, '$.pause')
                        WHEN 'object' THEN (SELECT word.key FROM json_each(json_body, '$.pause') AS word)
                    END) AS reason,
           json_extract(json_body, '$.outcome.status.failed.message') AS error_message,
           json_extract(json_body, '$.outcome.text') AS answer,
           min(coalesce(CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END
                        + CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END,
                        CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END,
                        CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END),
               9223372036854775807) AS input_tokens,
           min(coalesce(CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END
                        + CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END,
                        CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END,
                        CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END),
               9223372036854775807) AS output_tokens,
           min(CASE json_type(json_body, '$.cost') WHEN 'integer' THEN json_extract(json_body, '$.cost') END, 9223372036854775807) AS cost_pico
    FROM events WHERE kind IN ('run_started', 'run_resumed', 'run_paused', 'run_finished', 'model_finished')
),
runs AS (
    SELECT session, run, min(agent) AS agent, min(seq) AS seq, max(prompt) AS prompt, max(status) AS status,
           max(CASE WHEN kind = 'run_finished' THEN reason END) AS ended, max(error_message) AS error_message,
           -- The newest pause's: numbers of one length sort as text.
           substr(max(CASE WHEN kind = 'run_paused' THEN printf('%019d', seq) || reason END), 20) AS pause,
           max(CASE WHEN kind = 'run_paused' THEN seq END) AS paused_seq,
           max(CASE WHEN kind IN ('run_started', 'run_resumed') THEN seq END) AS begun_seq,
           coalesce(max(resumed), 0) AS resumed, max(answer) AS answer,
           min(CASE WHEN kind = 'run_started' THEN at END) AS started_at,
           max(CASE WHEN kind = 'run_finished' THEN at END) AS finished_at,
           count(CASE WHEN kind = 'model_finished' THEN 1 END) AS steps,
           CASE WHEN sum(input_tokens / 1000000000) + sum(input_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(input_tokens / 1000000000) * 1000000000 + sum(input_tokens % 1000000000) END AS input_tokens,
           CASE WHEN sum(output_tokens / 1000000000) + sum(output_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(output_tokens / 1000000000) * 1000000000 + sum(output_tokens % 1000000000) END AS output_tokens,
           CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
                THEN coalesce(CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END, 0) END AS cost_pico
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
    SELECT agent, session, kind, at, json_extract(json_body, '$.agent') AS name,
           min(coalesce(CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END
                        + CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END,
                        CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END,
                        CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END),
               9223372036854775807) AS input_tokens,
           min(coalesce(CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END
                        + CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END,
                        CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END,
                        CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END),
               9223372036854775807) AS output_tokens,
           min(CASE json_type(json_body, '$.cost') WHEN 'integer' THEN json_extract(json_body, '$.cost') END, 9223372036854775807) AS cost_pico
    FROM events WHERE kind IN ('run_started', 'model_finished')
)
SELECT agent, max(name) AS name, count(DISTINCT session) AS sessions,
       count(CASE WHEN kind = 'run_started' THEN 1 END) AS runs,
       count(CASE WHEN kind = 'model_finished' THEN 1 END) AS model_calls,
       CASE WHEN sum(input_tokens / 1000000000) + sum(input_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(input_tokens / 1000000000) * 1000000000 + sum(input_tokens % 1000000000) END AS input_tokens,
           CASE WHEN sum(output_tokens / 1000000000) + sum(output_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(output_tokens / 1000000000) * 1000000000 + sum(output_tokens % 1000000000) END AS output_tokens,
       CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
            THEN coalesce(CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END, 0) END AS cost_pico,
       min(at) AS first_at, max(at) AS last_at
FROM facts GROUP BY agent;

CREATE VIEW agent_plans AS
WITH lists AS (
    SELECT session, run, agent, seq, at, json_body, max(seq) OVER (PARTITION BY session) AS newest
    FROM events WHERE kind = 'todos_changed'
)
SELECT lists.session, lists.run, lists.agent, lists.seq, lists.at, item.key AS place,
       CASE item.type WHEN 'object' THEN json_extract(item.value, '$.content') END AS content,
       CASE item.type WHEN 'object' THEN json_extract(item.value, '$.status') END AS status,
       CASE item.type WHEN 'object' THEN json_extract(item.value, '$.active_form') END AS active_form,
       CASE WHEN lists.seq = lists.newest THEN 1 ELSE 0 END AS latest
FROM lists, json_each(lists.json_body, '$.todos') AS item;

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
    SELECT below.top, count(*) AS sessions,
           CASE WHEN sum(input_tokens / 1000000000) + sum(input_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(input_tokens / 1000000000) * 1000000000 + sum(input_tokens % 1000000000) END AS input_tokens,
           CASE WHEN sum(output_tokens / 1000000000) + sum(output_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(output_tokens / 1000000000) * 1000000000 + sum(output_tokens % 1000000000) END AS output_tokens,
           CASE WHEN count(*) = count(cost_pico) THEN CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END END AS cost_pico
    FROM below JOIN sessions ON sessions.id = below.id GROUP BY below.top
)
SELECT own.id AS session, own.parent, coalesce(sums.sessions, 0) AS descendants,
       own.input_tokens AS own_input_tokens, own.output_tokens AS own_output_tokens, own.cost_pico AS own_cost_pico,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.input_tokens END AS descendants_input_tokens,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.output_tokens END AS descendants_output_tokens,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.cost_pico END AS descendants_cost_pico,
       min(coalesce(own.input_tokens + sums.input_tokens, own.input_tokens, sums.input_tokens),
           9223372036854775807) AS total_input_tokens,
       min(coalesce(own.output_tokens + sums.output_tokens, own.output_tokens, sums.output_tokens),
           9223372036854775807) AS total_output_tokens,
       min(own.cost_pico + CASE WHEN sums.top IS NULL THEN 0 ELSE sums.cost_pico END, 9223372036854775807)
           AS total_cost_pico
FROM sessions AS own LEFT JOIN sums ON sums.top = own.id;
