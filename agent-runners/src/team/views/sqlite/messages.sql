WITH delivered AS (
    SELECT events.session, events.run, events.at, message.value AS message
    FROM events, json_each(CASE json_type(events.json_body, '$.value.messages')
                               WHEN 'array' THEN events.json_body -> 'value' -> 'messages' END) AS message
    WHERE events.kind = 'record:team.delivered'
),
firsts AS (
    SELECT session, run, message, min(at) AS at FROM delivered GROUP BY session, run, message
)
SELECT sent.session, sent.run, sent.agent, sent.seq, sent.at, sent.json_body -> 'value' ->> 'id' AS message,
       sent.json_body -> 'value' ->> 'from' AS sender, sent.json_body -> 'value' ->> 'to' AS recipient,
       sent.json_body -> 'value' ->> 'kind' AS kind, sent.json_body -> 'value' ->> 'text' AS text,
       sent.json_body -> 'value' ->> 'of' AS answers, firsts.at AS delivered_at
FROM events AS sent
LEFT JOIN firsts ON firsts.session = sent.session AND firsts.run = sent.run
    AND firsts.message = sent.json_body -> 'value' ->> 'id'
WHERE sent.kind = 'record:team.message'
