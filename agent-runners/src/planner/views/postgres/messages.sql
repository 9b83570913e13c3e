WITH models AS (
    SELECT session, max(model) AS model FROM model_calls GROUP BY session
),
said AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, json.body -> 'value' AS value,
           json.body #>> '{value,kind}' AS kind
    FROM events CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind = 'record:planner.message'
),
told AS (
    SELECT said.*, CASE WHEN said.kind IN ('task_assignment', 'clarification') THEN 'planner' ELSE 'executor' END AS sender
    FROM said
)
SELECT told.session, talks.parent, told.run, told.agent, told.seq, told.at, event_number(told.value -> 'turn') AS turn,
       told.sender, CASE told.sender WHEN 'planner' THEN 'user' ELSE 'assistant' END AS role, told.kind,
       told.value ->> 'text' AS text, event_number(told.value -> 'tool_calls') AS tool_calls,
       event_number(told.value -> 'usage' -> 'input') AS input_tokens,
       event_number(told.value -> 'usage' -> 'output') AS output_tokens,
       -- A message without tokens is no model's.
       CASE WHEN told.value -> 'usage' IS NOT NULL THEN models.model END AS model
FROM told
JOIN planner_conversations AS talks ON talks.session = told.session
LEFT JOIN models ON models.session = told.session || '$$' || told.sender
UNION ALL
SELECT messages.session, talks.parent, messages.run, messages.agent, messages.seq, messages.at, NULL,
       CASE messages.role WHEN 'assistant' THEN 'planner' ELSE 'system' END, messages.role, NULL, messages.text,
       (SELECT count(part.value -> 'tool_call') FROM jsonb_array_elements(event_list(event_json(messages.parts))) AS part (value)),
       calls.input_tokens, calls.output_tokens, calls.model
FROM messages
JOIN planner_conversations AS talks ON talks.session = messages.session AND talks.kind = 'planner_thinking'
LEFT JOIN model_calls AS calls ON calls.session = messages.session AND calls.seq = messages.seq
