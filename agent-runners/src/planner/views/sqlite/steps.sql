WITH planned AS (
    SELECT plans.session, plans.run, plans.agent, plans.seq, plans.round,
           CASE item.type WHEN 'object' THEN item.value END AS step
    FROM planner_plans AS plans,
         json_each(CASE json_type(plans.steps) WHEN 'array' THEN plans.steps END) AS item
),
-- A run executes one plan after the other, each in a run of the session below it. One without steps asks for earlier ones.
executed AS (
    SELECT session, run, above, row_number() OVER (PARTITION BY session, above ORDER BY seq) AS round
    FROM (SELECT session, run, seq, json_body -> 'above' ->> 'run' AS above
          FROM events
          WHERE kind = 'run_started' AND session LIKE '%$$plan'
            AND instr(json_body -> 'prompt', ',\"steps\":[],') = 0) AS runs
),
nodes AS (
    SELECT session, run, kind, at, json_body -> 'value' AS value, json_body -> 'value' ->> 'node' AS node
    FROM events
    WHERE kind IN ('record:graph.node_started', 'record:graph.node_finished') AND session LIKE '%$$plan'
)
SELECT planned.session, planned.run, planned.agent, planned.seq, planned.round,
       CAST(planned.step ->> 'number' AS bigint) AS step, planned.step ->> 'type' AS type,
       planned.step ->> 'description' AS description,
       CASE WHEN planned.step -> 'executor_required' = 'true' THEN 'executor' ELSE 'planner' END AS performer,
       planned.step -> 'tools' AS tools, planned.step -> 'depends_on' AS depends_on,
       CASE WHEN planned.step -> 'optional' = 'true' THEN 1 ELSE 0 END AS optional,
       CASE WHEN ended.value -> 'end' -> 'completed' IS NOT NULL THEN 'completed'
            WHEN ended.value -> 'end' -> 'skipped' IS NOT NULL THEN 'skipped'
            WHEN ended.value IS NOT NULL THEN 'failed'
            WHEN begun.value IS NOT NULL THEN 'executing' ELSE 'pending' END AS status,
       ended.value -> 'end' ->> 'completed' AS result,
       CASE WHEN ended.value ->> 'end' = 'cancelled' THEN 'it was cancelled'
            WHEN ended.value -> 'end' -> 'skipped' -> 'blocked' IS NOT NULL
                THEN 'step ' || (ended.value -> 'end' -> 'skipped' ->> 'blocked') || ' was not done'
            ELSE coalesce(ended.value -> 'end' -> 'failed' ->> 'message', ended.value -> 'end' ->> 'skipped')
       END AS error,
       begun.value ->> 'child' AS conversation,
       CAST(ended.value -> 'usage' ->> 'input' AS bigint) AS input_tokens,
       CAST(ended.value -> 'usage' ->> 'output' AS bigint) AS output_tokens,
       CAST(ended.value ->> 'cost' AS bigint) AS cost_pico,
       begun.at AS started_at, ended.at AS finished_at, CAST(ended.value ->> 'micros' AS bigint) AS micros
FROM planned
LEFT JOIN executed ON executed.session = planned.session || '$$plan' AND executed.above = planned.run
    AND executed.round = planned.round
LEFT JOIN nodes AS begun ON begun.kind = 'record:graph.node_started' AND begun.session = executed.session
    AND begun.run = executed.run AND begun.node = CAST(planned.step ->> 'number' AS text)
LEFT JOIN nodes AS ended ON ended.kind = 'record:graph.node_finished' AND ended.session = executed.session
    AND ended.run = executed.run AND ended.node = CAST(planned.step ->> 'number' AS text)
