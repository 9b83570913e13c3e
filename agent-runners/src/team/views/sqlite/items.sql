WITH plans AS (
    SELECT session, run, agent, seq, at, json_body -> 'value' -> 'items' AS items
    FROM events WHERE kind = 'record:team.planned'
),
items AS (
    SELECT plans.session, plans.run, plans.agent, plans.seq, plans.at,
           CASE item.type WHEN 'object' THEN item.value END AS item, 0 AS added
    FROM plans, json_each(CASE json_type(plans.items) WHEN 'array' THEN plans.items END) AS item
    UNION ALL
    -- What was added while the team worked.
    SELECT plans.session, plans.run, plans.agent, changed.seq, changed.at,
           json_object('id', changed.json_body -> 'value' -> 'change' -> 'add' -> 'node' ->> 'id',
                       'task', changed.json_body -> 'value' -> 'change' -> 'add' ->> 'task'), 1
    FROM plans JOIN events AS changed ON changed.session = plans.session AND changed.run = plans.run
    WHERE changed.kind = 'record:graph.changed' AND changed.json_body -> 'value' -> 'change' -> 'add' IS NOT NULL
),
told AS (
    SELECT session, run, seq, json_body -> 'value' ->> 'node' AS node, kind, json_body -> 'value' AS value FROM events
    WHERE kind IN ('record:graph.node_started', 'record:graph.node_finished')
    UNION ALL
    -- What is tried again waits, and so does what was skipped because of it.
    SELECT session, run, seq, json_body -> 'value' -> 'change' -> 'retry' ->> 'node', kind, NULL FROM events
    WHERE kind = 'record:graph.changed'
    UNION ALL
    SELECT events.session, events.run, events.seq, again.value, events.kind, NULL
    FROM events, json_each(CASE json_type(events.json_body, '$.value.again')
                               WHEN 'array' THEN events.json_body -> 'value' -> 'again' END) AS again
    WHERE events.kind = 'record:graph.changed'
),
nodes AS (
    SELECT told.session, told.run, told.node, told.kind, told.value,
           row_number() OVER (PARTITION BY told.session, told.run, told.node ORDER BY told.seq DESC) AS place
    FROM told JOIN plans ON plans.session = told.session AND plans.run = told.run
),
tries AS (
    SELECT session, run, item, count(*) AS attempts, min(started_at) AS started_at, max(finished_at) AS finished_at,
           -- In two parts: a sum beyond 64 bits would be an error.
           CASE WHEN count(*) = count(cost_pico) THEN CASE
                WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END END AS cost_pico
    FROM team_attempts GROUP BY session, run, item
)
SELECT items.session, items.run, items.agent, items.seq, items.item ->> 'id' AS item, items.item ->> 'task' AS task,
       items.item ->> 'type' AS type, items.item -> 'after' AS after, items.item -> 'members' AS members, items.added,
       CASE WHEN nodes.kind = 'record:graph.node_started' THEN 'running'
            WHEN nodes.value -> 'retry_at' IS NOT NULL OR nodes.value IS NULL THEN 'pending'
            WHEN nodes.value -> 'end' -> 'completed' IS NOT NULL THEN 'completed'
            WHEN nodes.value -> 'end' -> 'failed' IS NOT NULL THEN 'failed'
            WHEN nodes.value -> 'end' -> 'skipped' IS NOT NULL THEN 'skipped' ELSE 'cancelled' END AS status,
       nodes.value -> 'end' ->> 'completed' AS result,
       coalesce(nodes.value -> 'end' -> 'failed' ->> 'message',
                'blocked by ' || (nodes.value -> 'end' -> 'skipped' ->> 'blocked'),
                CASE nodes.value -> 'end' ->> 'skipped' WHEN 'asked' THEN 'skipped on request'
                    ELSE nodes.value -> 'end' ->> 'skipped' END) AS error,
       coalesce(tries.attempts, 0) AS attempts, items.at AS planned_at, tries.started_at, tries.finished_at,
       CASE WHEN tries.item IS NULL THEN 0 ELSE tries.cost_pico END AS cost_pico
FROM items
LEFT JOIN nodes ON nodes.session = items.session AND nodes.run = items.run AND nodes.node = items.item ->> 'id'
    AND nodes.place = 1
LEFT JOIN tries ON tries.session = items.session AND tries.run = items.run AND tries.item = items.item ->> 'id'
