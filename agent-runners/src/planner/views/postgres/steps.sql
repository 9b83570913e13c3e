WITH planned AS (
    SELECT plans.session, plans.run, plans.agent, plans.seq, plans.round, item.value AS step
    FROM planner_plans AS plans CROSS JOIN LATERAL jsonb_array_elements(event_list(event_json(plans.steps))) AS item (value)
),
-- A run executes one plan after the other, each in a run of the session below it. One without steps asks for earlier ones.
executed AS (
    SELECT events.session, events.run, json.body #>> '{above,run}' AS above,
           row_number() OVER (PARTITION BY events.session, json.body #>> '{above,run}' ORDER BY events.seq) AS round
    FROM events CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind = 'run_started' AND events.session LIKE '%$$plan'
        AND strpos((json.body -> 'prompt')::text, ',\"steps\":[],') = 0
),
nodes AS (
    SELECT events.session, events.run, events.kind, events.at, json.body -> 'value' AS value,
           json.body #>> '{value,node}' AS node
    FROM events CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('record:graph.node_started', 'record:graph.node_finished') AND events.session LIKE '%$$plan'
)
SELECT planned.session, planned.run, planned.agent, planned.seq, planned.round,
       event_number(planned.step -> 'number') AS step, planned.step ->> 'type' AS type,
       planned.step ->> 'description' AS description,
       CASE WHEN planned.step -> 'executor_required' = 'true' THEN 'executor' ELSE 'planner' END AS performer,
       planned.step ->> 'tools' AS tools, planned.step ->> 'depends_on' AS depends_on,
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
       event_number(ended.value -> 'usage' -> 'input') AS input_tokens,
       event_number(ended.value -> 'usage' -> 'output') AS output_tokens,
       event_number(ended.value -> 'cost') AS cost_pico,
       begun.at AS started_at, ended.at AS finished_at, event_number(ended.value -> 'micros') AS micros
FROM planned
LEFT JOIN executed ON executed.session = planned.session || '$$plan' AND executed.above = planned.run
    AND executed.round = planned.round
LEFT JOIN nodes AS begun ON begun.kind = 'record:graph.node_started' AND begun.session = executed.session
    AND begun.run = executed.run AND begun.node = planned.step ->> 'number'
LEFT JOIN nodes AS ended ON ended.kind = 'record:graph.node_finished' AND ended.session = executed.session
    AND ended.run = executed.run AND ended.node = planned.step ->> 'number'
