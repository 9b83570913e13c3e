WITH teams AS (
    SELECT DISTINCT session, run FROM events WHERE kind = 'record:team.planned'
),
nodes AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, events.kind, events.json_body -> 'value' AS value
    FROM events JOIN teams ON teams.session = events.session AND teams.run = events.run
    WHERE events.kind IN ('record:graph.node_started', 'record:graph.node_finished')
),
models AS (
    SELECT session, max(model) AS model FROM model_calls GROUP BY session
)
SELECT begun.session, begun.run, begun.agent, begun.seq, begun.value ->> 'node' AS item,
       CAST(begun.value ->> 'attempt' AS bigint) AS attempt, begun.value ->> 'agent' AS member,
       begun.value ->> 'child' AS conversation, models.model,
       CASE WHEN ended.value -> 'end' -> 'completed' IS NOT NULL THEN 'completed'
            WHEN ended.value -> 'end' -> 'failed' IS NOT NULL THEN 'failed'
            WHEN ended.value -> 'end' -> 'skipped' IS NOT NULL THEN 'skipped'
            WHEN ended.value IS NOT NULL THEN 'cancelled' ELSE 'running' END AS status,
       CASE WHEN ended.value -> 'retry_at' IS NOT NULL THEN 1 ELSE 0 END AS escalated,
       ended.value -> 'end' -> 'failed' ->> 'message' AS error,
       CAST(ended.value -> 'usage' ->> 'input' AS bigint) AS input_tokens,
       CAST(ended.value -> 'usage' ->> 'output' AS bigint) AS output_tokens,
       CAST(ended.value ->> 'cost' AS bigint) AS cost_pico,
       begun.at AS started_at, ended.at AS finished_at, CAST(ended.value ->> 'micros' AS bigint) AS micros
FROM nodes AS begun
LEFT JOIN nodes AS ended ON ended.kind = 'record:graph.node_finished' AND ended.session = begun.session
    AND ended.run = begun.run AND ended.value ->> 'node' = begun.value ->> 'node'
    AND ended.value ->> 'attempt' = begun.value ->> 'attempt'
LEFT JOIN models ON models.session = begun.value ->> 'child'
WHERE begun.kind = 'record:graph.node_started'
