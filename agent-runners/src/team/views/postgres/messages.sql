WITH delivered AS (
    SELECT events.session, events.run, events.at, message.value #>> '{}' AS message
    FROM events CROSS JOIN LATERAL jsonb_array_elements(event_list(event_json(events.body) #> '{value,messages}')) AS message (value)
    WHERE events.kind = 'record:team.delivered'
),
firsts AS (
    SELECT session, run, message, min(at) AS at FROM delivered GROUP BY session, run, message
),
sent AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, json.body -> 'value' AS value
    FROM events CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind = 'record:team.message'
)
SELECT sent.session, sent.run, sent.agent, sent.seq, sent.at, sent.value ->> 'id' AS message,
       sent.value ->> 'from' AS sender, sent.value ->> 'to' AS recipient, sent.value ->> 'kind' AS kind,
       sent.value ->> 'text' AS text, sent.value ->> 'of' AS answers, firsts.at AS delivered_at
FROM sent
LEFT JOIN firsts ON firsts.session = sent.session AND firsts.run = sent.run AND firsts.message = sent.value ->> 'id'
