-- Version 4: views that tell what is open. A run that was followed by another one, and a question whose run has ended, were
-- shown as open for ever, and the cost of a call whose process died as nothing. `approvals` has a column more.

PRAGMA user_version = 4;

DROP VIEW agents;
DROP VIEW tasks;
DROP VIEW agent_executions;
DROP VIEW approvals;

CREATE VIEW approvals AS
WITH asked AS (
    SELECT session, run, agent, seq, at, kind, json_extract(json_body, '$.id') AS id, json_extract(json_body, '$.tool') AS tool,
           json_extract(json_body, '$.arguments') AS arguments, json_extract(json_body, '$.rule') AS rule,
           json_extract(json_body, '$.decision') AS decision
    FROM events WHERE kind IN ('approval_requested', 'approval_decided')
),
questions AS (
    SELECT session, id, min(run) AS run, min(agent) AS agent, min(seq) AS seq, min(tool) AS tool,
           min(arguments) AS arguments, min(rule) AS rule,
           coalesce(max(CASE WHEN decision <> 'later' THEN decision END), max(decision)) AS decision,
           min(CASE WHEN kind = 'approval_requested' THEN at END) AS asked_at,
           max(CASE WHEN kind = 'approval_decided' THEN at END) AS decided_at,
           max(CASE WHEN kind = 'approval_decided' THEN at END)
               - min(CASE WHEN kind = 'approval_requested' THEN at END) AS micros
    FROM asked GROUP BY session, id
)
SELECT session, id, run, agent, seq, tool, arguments, rule, decision, asked_at, decided_at, micros,
       CASE WHEN decision <> 'later' THEN 'answered'
            -- A run ended, another one began, or the next step did: the call has its result by then.
            WHEN (SELECT later.seq FROM events AS later
                  WHERE later.session = questions.session AND later.seq > questions.seq
                    AND (later.kind IN ('run_started', 'run_finished')
                         OR later.kind = 'model_started' AND json_extract(later.json_body, '$.key') IS NULL)
                  ORDER BY later.seq LIMIT 1) IS NOT NULL THEN 'closed'
            ELSE 'open' END AS status
FROM questions;

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
                    END,
                    CASE json_type(json_body, '$.abandoned') WHEN 'true' THEN 'abandoned' END) AS reason,
           json_extract(json_body, '$.outcome.status.failed.message') AS error_message,
           json_extract(json_body, '$.outcome.text') AS answer,
           coalesce(json_extract(json_body, '$.request'), json_extract(json_body, '$.step')) AS request,
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
    FROM events WHERE kind IN ('run_started', 'run_resumed', 'run_paused', 'run_finished', 'model_started', 'model_finished')
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
           -- A call without an end costs what nobody knows.
           CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
                     AND count(DISTINCT CASE WHEN kind = 'model_started' THEN request END)
                         <= count(DISTINCT CASE WHEN kind = 'model_finished' THEN request END)
                THEN coalesce(CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END, 0) END AS cost_pico
    FROM marks GROUP BY session, run
),
-- Older versions began a run in the place of an open one without ending that.
placed AS (
    SELECT runs.*, lead(seq) OVER (PARTITION BY session ORDER BY seq) AS next_seq,
           lead(started_at) OVER (PARTITION BY session ORDER BY seq) AS next_at
    FROM runs
)
SELECT session, run, agent, seq, prompt,
       CASE WHEN status IS NOT NULL THEN status WHEN next_seq IS NOT NULL THEN 'cancelled'
            WHEN paused_seq > begun_seq THEN 'paused' ELSE 'running' END AS status,
       CASE WHEN status IS NOT NULL THEN ended WHEN next_seq IS NOT NULL THEN 'abandoned'
            WHEN paused_seq > begun_seq THEN pause END AS reason,
       error_message, answer, resumed, started_at, coalesce(finished_at, next_at) AS finished_at,
       coalesce(finished_at, next_at) - started_at AS micros, steps, input_tokens, output_tokens, cost_pico
FROM placed;

CREATE VIEW tasks AS
SELECT runs.session, sessions.parent, sessions.role, runs.run, runs.agent, runs.prompt, runs.status, runs.reason,
       runs.error_message, runs.answer, runs.resumed, runs.started_at, runs.finished_at, runs.micros, runs.steps,
       runs.input_tokens, runs.output_tokens, runs.cost_pico
FROM agent_executions AS runs JOIN sessions ON sessions.id = runs.session
WHERE sessions.parent IS NOT NULL;

CREATE VIEW agents AS
WITH facts AS (
    SELECT agent, session, kind, at, json_extract(json_body, '$.agent') AS name,
           coalesce(json_extract(json_body, '$.request'), run || '.' || json_extract(json_body, '$.step')) AS request,
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
    FROM events WHERE kind IN ('run_started', 'model_started', 'model_finished')
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
                 AND count(DISTINCT CASE WHEN kind = 'model_started' THEN request END)
                     <= count(DISTINCT CASE WHEN kind = 'model_finished' THEN request END)
            THEN coalesce(CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END, 0) END AS cost_pico,
       min(at) AS first_at, max(at) AS last_at
FROM facts GROUP BY agent;

-- A model call without an end makes its session's cost unknown, as for sessions that are written from now on.
UPDATE sessions SET cost_pico = NULL
WHERE cost_pico IS NOT NULL AND id IN (SELECT session FROM model_calls WHERE finished_at IS NULL);
