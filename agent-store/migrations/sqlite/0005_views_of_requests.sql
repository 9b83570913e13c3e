-- Version 5: views of what models were asked. `requests` names the contents of each call's request by digests, and
-- `request_contents` has their texts.

PRAGMA user_version = 5;

CREATE VIEW requests AS
SELECT session, run, agent, seq, json_extract(json_body, '$.request') AS request,
       json_extract(json_body, '$.step') AS step, json_extract(json_body, '$.provider') AS provider,
       json_extract(json_body, '$.model') AS model, json_extract(json_body, '$.instructions') AS instructions,
       json_extract(json_body, '$.tools') AS tools, json_extract(json_body, '$.settings') AS settings,
       json_extract(json_body, '$.messages') AS messages
FROM events WHERE kind = 'model_started';

CREATE VIEW request_contents AS
SELECT events.session, events.run, events.agent, events.seq, item.key AS digest, item.value AS text
FROM events, json_each(events.json_body, '$.contents') AS item
WHERE events.kind = 'model_started' AND json_type(events.json_body, '$.contents') = 'object' AND item.type = 'text';
