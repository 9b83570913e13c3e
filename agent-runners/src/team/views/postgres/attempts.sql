WITH found AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, events.kind, json.body -> 'value' AS value,
           row_number() OVER (PARTITION BY events.session, events.run, events.kind, json.body #>> '{value,node}',
                              json.body #>> '{value,attempt}' ORDER BY events.seq) AS place
    FROM events CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('record:graph.node_started', 'record:graph.node_finished')
      AND (events.session, events.run) IN (SELECT session, run FROM events WHERE kind = 'record:team.planned')
),
nodes AS (
    SELECT session, run, agent, seq, at, CASE kind WHEN 'record:graph.node_started' THEN 1 ELSE 0 END AS begun,
           value ->> 'node' AS item, event_number(value -> 'attempt') AS attempt, value ->> 'agent' AS member,
           value ->> 'child' AS conversation,
           CASE WHEN value -> 'end' -> 'completed' IS NOT NULL THEN 'completed'
                WHEN value -> 'end' -> 'failed' IS NOT NULL THEN 'failed'
                WHEN value -> 'end' -> 'skipped' IS NOT NULL THEN 'skipped'
                WHEN kind = 'record:graph.node_finished' THEN 'cancelled' END AS status,
           CASE WHEN value -> 'retry_at' IS NOT NULL AND value -> 'end' -> 'failed' IS NOT NULL THEN 1 ELSE 0 END AS escalated,
           value -> 'end' -> 'failed' ->> 'message' AS error,
           event_number(value -> 'usage' -> 'input') AS input_tokens,
           event_number(value -> 'usage' -> 'output') AS output_tokens,
           event_number(value -> 'cost') AS cost_pico, event_number(value -> 'micros') AS micros
    -- Up to version 2 a later skip had the number of the attempt before it.
    FROM found WHERE place = 1
),
-- Joined by their keys: a join of beginnings with ends grows with the square of both.
tries AS (
    SELECT session, run, item, attempt, min(agent) AS agent, max(CASE begun WHEN 1 THEN seq END) AS seq,
           max(member) AS member, max(conversation) AS conversation, max(status) AS status,
           max(escalated) AS escalated, max(error) AS error, max(input_tokens) AS input_tokens,
           max(output_tokens) AS output_tokens, max(cost_pico) AS cost_pico,
           max(CASE begun WHEN 1 THEN at END) AS started_at, max(CASE begun WHEN 0 THEN at END) AS finished_at,
           max(micros) AS micros
    FROM nodes GROUP BY session, run, item, attempt HAVING max(begun) = 1
),
models AS (
    SELECT session, max(model) AS model FROM model_calls GROUP BY session
)
SELECT tries.session, tries.run, tries.agent, tries.seq, tries.item, tries.attempt, tries.member, tries.conversation,
       models.model, coalesce(tries.status, 'running') AS status, tries.escalated, tries.error, tries.input_tokens,
       tries.output_tokens, tries.cost_pico, tries.started_at, tries.finished_at, tries.micros
FROM tries LEFT JOIN models ON models.session = tries.conversation
