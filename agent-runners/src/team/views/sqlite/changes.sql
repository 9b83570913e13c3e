WITH changes AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, events.json_body -> 'value' -> 'change' AS change,
           (SELECT min(word.key) FROM json_each(CASE json_type(events.json_body, '$.value.change')
                WHEN 'object' THEN events.json_body -> 'value' -> 'change' END) AS word) AS kind
    FROM events WHERE kind = 'record:graph.changed'
      AND EXISTS (SELECT 1 FROM events AS plans WHERE plans.kind = 'record:team.planned'
                  AND plans.session = events.session AND plans.run = events.run)
),
said AS (
    SELECT changes.*, change -> kind AS what FROM changes WHERE kind IS NOT NULL
)
SELECT session, run, agent, seq, at, kind, CASE kind WHEN 'add' THEN what -> 'node' ->> 'id' ELSE what ->> 'node' END AS item,
       CASE kind WHEN 'add' THEN what -> 'node' ->> 'agent' ELSE what ->> 'agent' END AS member, what ->> 'task' AS task
FROM said
