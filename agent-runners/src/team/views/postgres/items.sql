WITH plans AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, json.body #> '{value,items}' AS items
    FROM events CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind = 'record:team.planned'
),
items AS (
    SELECT plans.session, plans.run, plans.agent, plans.seq, plans.at, item.value AS item, 0 AS added
    FROM plans CROSS JOIN LATERAL jsonb_array_elements(event_list(plans.items)) AS item (value)
    UNION ALL
    -- What was added while the team worked.
    SELECT plans.session, plans.run, plans.agent, changed.seq, changed.at,
           jsonb_build_object('id', json.body #> '{value,change,add,node,id}', 'task', json.body #> '{value,change,add,task}'),
           1
    FROM plans JOIN events AS changed ON changed.session = plans.session AND changed.run = plans.run
    CROSS JOIN LATERAL (SELECT event_json(changed.body) AS body OFFSET 0) AS json
    WHERE changed.kind = 'record:graph.changed' AND json.body #> '{value,change,add}' IS NOT NULL
),
found AS (
    SELECT events.session, events.run, events.seq, events.kind, json.body -> 'value' AS value
    FROM events JOIN plans ON plans.session = events.session AND plans.run = events.run
    CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('record:graph.node_started', 'record:graph.node_finished', 'record:graph.changed')
),
told AS (
    SELECT session, run, seq, value ->> 'node' AS node, kind, value FROM found WHERE kind <> 'record:graph.changed'
    UNION ALL
    -- What is tried again waits, and so does what was skipped because of it.
    SELECT session, run, seq, value #>> '{change,retry,node}', kind, NULL FROM found WHERE kind = 'record:graph.changed'
    UNION ALL
    SELECT found.session, found.run, found.seq, again.value #>> '{}', found.kind, NULL
    FROM found CROSS JOIN LATERAL jsonb_array_elements(event_list(found.value -> 'again')) AS again (value)
    WHERE found.kind = 'record:graph.changed'
),
nodes AS (
    SELECT told.*, row_number() OVER (PARTITION BY session, run, node ORDER BY seq DESC) AS place FROM told
),
tries AS (
    SELECT session, run, item, count(*) AS attempts, min(started_at) AS started_at, max(finished_at) AS finished_at,
           CASE WHEN count(*) = count(cost_pico) THEN event_total(sum(cost_pico)) END AS cost_pico
    FROM team_attempts GROUP BY session, run, item
)
SELECT items.session, items.run, items.agent, items.seq, items.item ->> 'id' AS item, items.item ->> 'task' AS task,
       items.item ->> 'type' AS type, items.item ->> 'after' AS after, items.item ->> 'members' AS members, items.added,
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
