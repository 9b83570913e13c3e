-- Version 2: who may write, where reading begins, and views over the events. README.md documents them.

PRAGMA user_version = 2;

-- The bits of an unsigned number, as in events.writer.
ALTER TABLE sessions ADD COLUMN lease_owner      INTEGER;
ALTER TABLE sessions ADD COLUMN lease_generation INTEGER CHECK (lease_generation >= 0);
ALTER TABLE sessions ADD COLUMN lease_until      INTEGER
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL) AND (lease_generation IS NULL) = (lease_until IS NULL));
ALTER TABLE sessions ADD COLUMN checkpoint       INTEGER NOT NULL DEFAULT 0 CHECK (checkpoint >= 0);

-- The views look for a few kinds of events, and long sessions are mostly made of others.
CREATE INDEX events_by_kind ON events (kind, session, seq);

-- The views have the same names, columns and meaning as those for PostgreSQL: change both. Where an event's neighbours
-- are looked up, the search begins at the event and ends after a few rows, so that long sessions stay cheap.

CREATE VIEW clock AS
SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) AS now;

CREATE VIEW model_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, finished.body,
           (SELECT started.seq FROM events AS started
            WHERE started.session = finished.session AND started.seq < finished.seq
              AND started.kind = 'model_started' AND started.run = finished.run
              AND json_extract(started.body, '$.request') IS json_extract(finished.body, '$.request')
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
                           AND json_extract(later.body, '$.request') IS json_extract(begun.body, '$.request'))
                    ORDER BY later.seq LIMIT 1), 'run_started') = 'run_started'
)
SELECT calls.session, calls.run, calls.agent, calls.seq,
       coalesce(json_extract(calls.body, '$.step'), json_extract(started.body, '$.step')) AS step,
       coalesce((SELECT json_extract(restart.body, '$.restart.provider') FROM events AS restart
                 WHERE restart.session = calls.session AND restart.seq > calls.started AND restart.seq < calls.seq
                   AND restart.kind = 'model_restarted' AND restart.run = calls.run
                   AND json_extract(restart.body, '$.request') IS json_extract(calls.body, '$.request')
                   AND json_extract(restart.body, '$.restart.provider') IS NOT NULL
                 ORDER BY restart.seq DESC LIMIT 1),
                json_extract(started.body, '$.provider')) AS provider,
       coalesce((SELECT json_extract(restart.body, '$.restart.model') FROM events AS restart
                 WHERE restart.session = calls.session AND restart.seq > calls.started AND restart.seq < calls.seq
                   AND restart.kind = 'model_restarted' AND restart.run = calls.run
                   AND json_extract(restart.body, '$.request') IS json_extract(calls.body, '$.request')
                   AND json_extract(restart.body, '$.restart.model') IS NOT NULL
                 ORDER BY restart.seq DESC LIMIT 1),
                json_extract(started.body, '$.model')) AS model,
       json_extract(calls.body, '$.model') AS reported_model,
       CASE WHEN calls.body IS NOT NULL THEN coalesce(json_extract(calls.body, '$.attempt'), 1) END AS attempts,
       started.at AS started_at, calls.finished_at, json_extract(calls.body, '$.micros') AS micros,
       json_extract(calls.body, '$.finish.reason') AS finish,
       coalesce(json_extract(calls.body, '$.usage.input') + json_extract(calls.body, '$.wasted.input'),
                json_extract(calls.body, '$.usage.input'), json_extract(calls.body, '$.wasted.input')) AS input_tokens,
       coalesce(json_extract(calls.body, '$.usage.output') + json_extract(calls.body, '$.wasted.output'),
                json_extract(calls.body, '$.usage.output'), json_extract(calls.body, '$.wasted.output')) AS output_tokens,
       coalesce(json_extract(calls.body, '$.usage.cache_read') + json_extract(calls.body, '$.wasted.cache_read'),
                json_extract(calls.body, '$.usage.cache_read'),
                json_extract(calls.body, '$.wasted.cache_read')) AS cache_read_tokens,
       coalesce(json_extract(calls.body, '$.usage.cache_write') + json_extract(calls.body, '$.wasted.cache_write'),
                json_extract(calls.body, '$.usage.cache_write'),
                json_extract(calls.body, '$.wasted.cache_write')) AS cache_write_tokens,
       coalesce(json_extract(calls.body, '$.usage.reasoning') + json_extract(calls.body, '$.wasted.reasoning'),
                json_extract(calls.body, '$.usage.reasoning'),
                json_extract(calls.body, '$.wasted.reasoning')) AS reasoning_tokens,
       json_extract(calls.body, '$.cost') AS cost_pico,
       json_extract(calls.body, '$.error.kind') AS error,
       json_extract(calls.body, '$.error.message') AS error_message
FROM calls
LEFT JOIN events AS started ON started.session = calls.session AND started.seq = calls.started;

CREATE VIEW tool_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, finished.body,
           json_extract(finished.body, '$.index') AS place, json_extract(finished.body, '$.result.call') AS call,
           json_extract(finished.body, '$.result.name') AS tool,
           -- What came last before the result: the claim of this call, or the reply that asked for it.
           (SELECT started.seq FROM events AS started
            WHERE started.session = finished.session AND started.seq < finished.seq AND started.run = finished.run
              AND (started.kind = 'tool_started'
                   AND json_extract(started.body, '$.index') = json_extract(finished.body, '$.index')
                   AND json_extract(started.body, '$.key.ordinal') IS json_extract(finished.body, '$.key.ordinal')
                   OR started.kind = 'model_finished' AND json_extract(finished.body, '$.key') IS NULL
                   AND json_extract(started.body, '$.key') IS NULL
                   OR started.kind = 'run_started')
            ORDER BY started.seq DESC LIMIT 1) AS started,
           json_extract(finished.body, '$.key') IS NULL AS asked
    FROM events AS finished
    WHERE finished.kind = 'tool_finished'
    UNION ALL
    SELECT begun.session, begun.run, begun.agent, begun.seq, NULL, NULL,
           json_extract(begun.body, '$.index'), json_extract(begun.body, '$.call'), json_extract(begun.body, '$.tool'),
           begun.seq, json_extract(begun.body, '$.key') IS NULL
    FROM events AS begun
    WHERE begun.kind = 'tool_started'
      AND coalesce((SELECT later.kind FROM events AS later
                    WHERE later.session = begun.session AND later.seq > begun.seq
                      AND (later.kind = 'run_started'
                           OR later.kind = 'model_finished' AND json_extract(later.body, '$.key') IS NULL
                           AND json_extract(begun.body, '$.key') IS NULL
                           OR later.kind IN ('tool_started', 'tool_finished')
                           AND json_extract(later.body, '$.index') = json_extract(begun.body, '$.index')
                           AND json_extract(later.body, '$.key.ordinal') IS json_extract(begun.body, '$.key.ordinal'))
                    ORDER BY later.seq LIMIT 1), 'run_started') IN ('run_started', 'model_finished')
),
placed AS (
    SELECT calls.*,
           CASE WHEN asked THEN
               (SELECT reply.seq FROM events AS reply
                WHERE reply.session = calls.session AND reply.seq < calls.seq
                  AND reply.kind = 'model_finished' AND json_extract(reply.body, '$.key') IS NULL
                ORDER BY reply.seq DESC LIMIT 1) END AS message
    FROM calls
)
SELECT placed.session, placed.run, placed.agent, placed.seq, placed.message, placed.place,
       placed.session || '.' || placed.message || '$$' || placed.place AS id,
       placed.call, placed.tool,
       (SELECT json_extract(part.value, '$.tool_call.arguments')
        FROM json_each(reply.body, '$.message.parts') AS part
        WHERE json_extract(part.value, '$.tool_call.id') = placed.call LIMIT 1) AS arguments,
       json_extract(started.body, '$.allowed_by') AS allowed_by,
       CASE WHEN placed.body IS NULL THEN 'unfinished'
            WHEN json_extract(placed.body, '$.denied') THEN 'denied'
            WHEN json_extract(placed.body, '$.result.is_error') THEN 'failed'
            ELSE 'succeeded' END AS status,
       CASE WHEN started.kind = 'tool_started' THEN started.at END AS started_at,
       placed.finished_at, json_extract(placed.body, '$.micros') AS micros,
       (SELECT group_concat(json_extract(part.value, '$.text'), char(10))
        FROM json_each(placed.body, '$.result.content') AS part) AS output
FROM placed
LEFT JOIN events AS reply ON reply.session = placed.session AND reply.seq = placed.message
LEFT JOIN events AS started ON started.session = placed.session AND started.seq = placed.started;

CREATE VIEW messages AS
WITH said AS (
    SELECT session, run, agent, seq, at, kind,
           CASE kind
               WHEN 'run_started' THEN json_extract(body, '$.prompt')
               WHEN 'compacted' THEN json_extract(body, '$.summary')
               WHEN 'tool_finished' THEN json_object('role', 'tool', 'parts', json_array(
                   json_object('tool_result', json_extract(body, '$.result'))))
               WHEN 'run_finished' THEN json_object('role', 'assistant', 'parts', json_array(
                   json_object('text', json_extract(body, '$.outcome.text'))))
               ELSE json_extract(body, '$.message')
           END AS message
    FROM events AS said
    WHERE kind IN ('run_started', 'message_added', 'compacted')
       OR kind IN ('model_finished', 'tool_finished') AND json_extract(body, '$.key') IS NULL
       -- The answer of an agent whose model calls, if any, are no part of the conversation.
       OR kind = 'run_finished' AND json_extract(body, '$.outcome.status') = 'completed'
          AND json_extract(body, '$.outcome.text') <> ''
          AND 'run_started' = (SELECT before.kind FROM events AS before
                               WHERE before.session = said.session AND before.seq < said.seq AND before.run = said.run
                                 AND (before.kind = 'run_started' OR before.kind = 'model_finished'
                                                                     AND json_extract(before.body, '$.key') IS NULL)
                               ORDER BY before.seq DESC LIMIT 1)
)
SELECT session, run, agent, seq, at, kind, json_extract(message, '$.role') AS role,
       coalesce((SELECT group_concat(json_extract(part.value, '$.text'), '')
                 FROM json_each(message, '$.parts') AS part),
                (SELECT group_concat(json_extract(part.value, '$.text'), char(10))
                 FROM json_each(message, '$.parts[0].tool_result.content') AS part),
                '') AS text,
       json_extract(message, '$.parts') AS parts
FROM said
WHERE json_array_length(message, '$.parts') > 0;

CREATE VIEW approvals AS
WITH asked AS (
    SELECT session, run, agent, seq, at, kind, json_extract(body, '$.id') AS id, json_extract(body, '$.tool') AS tool,
           json_extract(body, '$.arguments') AS arguments, json_extract(body, '$.rule') AS rule,
           json_extract(body, '$.decision') AS decision
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
           (SELECT group_concat(json_extract(part.value, '$.text'), '')
            FROM json_each(body, '$.prompt.parts') AS part) AS prompt,
           json_extract(body, '$.count') AS resumed,
           CASE json_type(body, '$.outcome.status')
               WHEN 'text' THEN json_extract(body, '$.outcome.status')
               WHEN 'object' THEN (SELECT word.key FROM json_each(body, '$.outcome.status') AS word)
           END AS status,
           coalesce(json_extract(body, '$.outcome.status.failed.kind'),
                    CASE json_type(body, '$.outcome.status.stopped')
                        WHEN 'text' THEN json_extract(body, '$.outcome.status.stopped')
                        WHEN 'object' THEN (SELECT word.key FROM json_each(body, '$.outcome.status.stopped') AS word)
                    END,
                    CASE json_type(body, '$.pause')
                        WHEN 'text' THEN json_extract(body, '$.pause')
                        WHEN 'object' THEN (SELECT word.key FROM json_each(body, '$.pause') AS word)
                    END) AS reason,
           json_extract(body, '$.outcome.status.failed.message') AS error_message,
           json_extract(body, '$.outcome.text') AS answer,
           coalesce(json_extract(body, '$.usage.input') + json_extract(body, '$.wasted.input'),
                    json_extract(body, '$.usage.input'), json_extract(body, '$.wasted.input')) AS input_tokens,
           coalesce(json_extract(body, '$.usage.output') + json_extract(body, '$.wasted.output'),
                    json_extract(body, '$.usage.output'), json_extract(body, '$.wasted.output')) AS output_tokens,
           json_extract(body, '$.cost') AS cost_pico
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
           sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
           CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
                THEN coalesce(sum(cost_pico), 0) END AS cost_pico
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
    SELECT agent, session, kind, at, json_extract(body, '$.agent') AS name,
           coalesce(json_extract(body, '$.usage.input') + json_extract(body, '$.wasted.input'),
                    json_extract(body, '$.usage.input'), json_extract(body, '$.wasted.input')) AS input_tokens,
           coalesce(json_extract(body, '$.usage.output') + json_extract(body, '$.wasted.output'),
                    json_extract(body, '$.usage.output'), json_extract(body, '$.wasted.output')) AS output_tokens,
           json_extract(body, '$.cost') AS cost_pico
    FROM events WHERE kind IN ('run_started', 'model_finished')
)
SELECT agent, max(name) AS name, count(DISTINCT session) AS sessions,
       count(CASE WHEN kind = 'run_started' THEN 1 END) AS runs,
       count(CASE WHEN kind = 'model_finished' THEN 1 END) AS model_calls,
       sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
       CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
            THEN coalesce(sum(cost_pico), 0) END AS cost_pico,
       min(at) AS first_at, max(at) AS last_at
FROM facts GROUP BY agent;

CREATE VIEW agent_plans AS
WITH lists AS (
    SELECT session, run, agent, seq, at, body, max(seq) OVER (PARTITION BY session) AS newest
    FROM events WHERE kind = 'todos_changed'
)
SELECT lists.session, lists.run, lists.agent, lists.seq, lists.at, item.key AS place,
       json_extract(item.value, '$.content') AS content, json_extract(item.value, '$.status') AS status,
       json_extract(item.value, '$.active_form') AS active_form,
       CASE WHEN lists.seq = lists.newest THEN 1 ELSE 0 END AS latest
FROM lists, json_each(lists.body, '$.todos') AS item;

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
    SELECT below.top, count(*) AS sessions, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
           CASE WHEN count(*) = count(cost_pico) THEN sum(cost_pico) END AS cost_pico
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
