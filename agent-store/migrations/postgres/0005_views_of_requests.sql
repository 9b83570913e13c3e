-- Version 5: views of what models were asked. `requests` names the contents of each call's request by digests, and
-- `request_contents` has their texts.

CREATE OR REPLACE VIEW requests AS
SELECT events.session, events.run, events.agent, events.seq, json.body ->> 'request' AS request,
       event_number(json.body -> 'step') AS step, json.body ->> 'provider' AS provider, json.body ->> 'model' AS model,
       json.body ->> 'instructions' AS instructions, json.body ->> 'tools' AS tools,
       json.body ->> 'settings' AS settings, json.body ->> 'messages' AS messages
FROM events
CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
WHERE events.kind = 'model_started';

CREATE OR REPLACE VIEW request_contents AS
SELECT events.session, events.run, events.agent, events.seq, item.key AS digest, item.value #>> '{}' AS text
FROM events
CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(json.body -> 'contents') WHEN 'object' THEN json.body -> 'contents'
                              ELSE '{}' END) AS item
WHERE events.kind = 'model_started' AND jsonb_typeof(item.value) = 'string';
