WITH changes AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, json.body #> '{value,change}' AS change
    FROM events CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind = 'record:graph.changed'
      AND EXISTS (SELECT 1 FROM events AS plans WHERE plans.kind = 'record:team.planned'
                  AND plans.session = events.session AND plans.run = events.run)
),
said AS (
    SELECT changes.*, word.key AS kind, word.value AS what
    FROM changes CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(changes.change) WHEN 'object' THEN changes.change
                                                    ELSE '{}' END) AS word
)
SELECT session, run, agent, seq, at, kind, CASE kind WHEN 'add' THEN what -> 'node' ->> 'id' ELSE what ->> 'node' END AS item,
       CASE kind WHEN 'add' THEN what -> 'node' ->> 'agent' ELSE what ->> 'agent' END AS member, what ->> 'task' AS task
FROM said
