-- Version 4: views that tell what is open. A run that was followed by another one, and a question whose run has ended, were
-- shown as open for ever, and the cost of a call whose process died as nothing. `approvals` has a column more.

CREATE OR REPLACE VIEW approvals AS
WITH asked AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, events.kind, json.body ->> 'id' AS id,
           json.body ->> 'tool' AS tool, json.body ->> 'arguments' AS arguments, json.body ->> 'rule' AS rule,
           json.body ->> 'decision' AS decision
    FROM events
    CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('approval_requested', 'approval_decided')
),
questions AS (
    SELECT session, id, min(run) AS run, min(agent) AS agent, min(seq) AS seq, min(tool) AS tool,
           min(arguments) AS arguments, min(rule) AS rule,
           coalesce(max(CASE WHEN decision <> 'later' THEN decision END), max(decision)) AS decision,
           min(CASE WHEN kind = 'approval_requested' THEN at END) AS asked_at,
           max(CASE WHEN kind = 'approval_decided' THEN at END) AS decided_at,
           event_total(max(CASE WHEN kind = 'approval_decided' THEN at END)::numeric
               - min(CASE WHEN kind = 'approval_requested' THEN at END)) AS micros
    FROM asked GROUP BY session, id
)
SELECT session, id, run, agent, seq, tool, arguments, rule, decision, asked_at, decided_at, micros,
       CASE WHEN decision <> 'later' THEN 'answered'
            -- A run ended, another one began, or the next step did: the call has its result by then.
            WHEN (SELECT later.seq FROM events AS later
                  WHERE later.session = questions.session AND later.seq > questions.seq
                    AND CASE WHEN later.kind = 'model_started' THEN event_json(later.body) -> 'key' IS NULL
                             ELSE later.kind IN ('run_started', 'run_finished') END
                  ORDER BY later.seq LIMIT 1) IS NOT NULL THEN 'closed'
            ELSE 'open' END AS status
FROM questions;

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
                    END,
                    CASE WHEN json.body -> 'abandoned' = 'true' THEN 'abandoned' END) AS reason,
           json.body #>> '{outcome,status,failed,message}' AS error_message,
           json.body #>> '{outcome,text}' AS answer,
           coalesce(json.body ->> 'request', json.body ->> 'step') AS request,
           event_sum(json.body #> '{usage,input}', json.body #> '{wasted,input}') AS input_tokens,
           event_sum(json.body #> '{usage,output}', json.body #> '{wasted,output}') AS output_tokens,
           event_number(json.body -> 'cost') AS cost_pico
    FROM events
    CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('run_started', 'run_resumed', 'run_paused', 'run_finished', 'model_started', 'model_finished')
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
           -- A call without an end costs what nobody knows.
           CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
                     AND count(DISTINCT CASE WHEN kind = 'model_started' THEN request END)
                         <= count(DISTINCT CASE WHEN kind = 'model_finished' THEN request END)
                THEN event_total(coalesce(sum(cost_pico), 0)) END AS cost_pico
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
       event_total(coalesce(finished_at, next_at)::numeric - started_at) AS micros,
       steps, input_tokens, output_tokens, cost_pico
FROM placed;

CREATE OR REPLACE VIEW agents AS
WITH facts AS (
    SELECT events.agent, events.session, events.kind, events.at, json.body ->> 'agent' AS name,
           coalesce(json.body ->> 'request', events.run || '.' || (json.body ->> 'step')) AS request,
           event_sum(json.body #> '{usage,input}', json.body #> '{wasted,input}') AS input_tokens,
           event_sum(json.body #> '{usage,output}', json.body #> '{wasted,output}') AS output_tokens,
           event_number(json.body -> 'cost') AS cost_pico
    FROM events
    CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('run_started', 'model_started', 'model_finished')
)
SELECT agent, max(name) AS name, count(DISTINCT session) AS sessions,
       count(CASE WHEN kind = 'run_started' THEN 1 END) AS runs,
       count(CASE WHEN kind = 'model_finished' THEN 1 END) AS model_calls,
       event_total(sum(input_tokens)) AS input_tokens, event_total(sum(output_tokens)) AS output_tokens,
       CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
                 AND count(DISTINCT CASE WHEN kind = 'model_started' THEN request END)
                     <= count(DISTINCT CASE WHEN kind = 'model_finished' THEN request END)
            THEN event_total(coalesce(sum(cost_pico), 0)) END AS cost_pico,
       min(at) AS first_at, max(at) AS last_at
FROM facts GROUP BY agent;

-- A model call without an end makes its session's cost unknown, as for sessions that are written from now on.
UPDATE sessions SET cost_pico = NULL
WHERE cost_pico IS NOT NULL AND id IN (SELECT session FROM model_calls WHERE finished_at IS NULL);
