-- Version 6: views of what waits for input. `approvals` knows every decision, and shows a question that was put off
-- until a time as open; it has columns more. `pending` lists what all sessions wait for.

-- The name of a value: a word, or an object with one field of that name.
CREATE FUNCTION event_word(value jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE jsonb_typeof(value) WHEN 'string' THEN value #>> '{}'
       WHEN 'object' THEN (SELECT min(word) FROM jsonb_object_keys(value) AS word) END
$$;

CREATE OR REPLACE VIEW approvals AS
WITH asked AS (
    SELECT events.session, events.run, events.agent, events.seq, events.at, events.kind, json.body ->> 'id' AS id,
           event_word(json.body -> 'decision') AS decision
    FROM events
    CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
    WHERE events.kind IN ('approval_requested', 'approval_decided')
),
questions AS (
    SELECT session, id, min(run) AS run, min(agent) AS agent, min(seq) AS seq,
           max(CASE WHEN kind = 'approval_requested' THEN seq END) AS request,
           max(CASE WHEN decision NOT IN ('later', 'until') THEN seq END) AS final,
           max(CASE WHEN decision IN ('later', 'until') THEN seq END) AS put_off,
           min(CASE WHEN kind = 'approval_requested' THEN at END) AS first_at
    FROM asked GROUP BY session, id
),
-- A question that is asked again after its answer is open again.
answers AS (
    SELECT questions.*,
           CASE WHEN final > coalesce(request, 0) THEN final WHEN put_off > coalesce(final, 0) THEN put_off END
               AS answer,
           CASE WHEN request > final THEN
               (SELECT again.at FROM events AS again
                WHERE again.session = questions.session AND again.seq > questions.final
                  AND again.kind = 'approval_requested'
                  AND event_json(again.body) ->> 'id' IS NOT DISTINCT FROM questions.id
                ORDER BY again.seq LIMIT 1) ELSE first_at END AS asked_at
    FROM questions
),
told AS (
    SELECT answers.*, asked.body AS asked, answered.body AS answered, decided.at AS decided_at,
           event_word(answered.body -> 'decision') AS decision
    FROM answers
    LEFT JOIN events AS request ON request.session = answers.session AND request.seq = answers.request
    LEFT JOIN events AS decided ON decided.session = answers.session AND decided.seq = answers.answer
    CROSS JOIN LATERAL (SELECT event_json(request.body) AS body OFFSET 0) AS asked
    CROSS JOIN LATERAL (SELECT event_json(decided.body) AS body OFFSET 0) AS answered
)
SELECT session, id, run, agent, seq, asked ->> 'tool' AS tool, asked ->> 'arguments' AS arguments,
       asked ->> 'rule' AS rule, decision, asked_at, decided_at, event_total(decided_at::numeric - asked_at) AS micros,
       CASE WHEN decision NOT IN ('later', 'until') THEN 'answered'
            -- A run ended, another one began, or the next step did: the call has its result by then.
            WHEN (SELECT later.seq FROM events AS later
                  WHERE later.session = told.session AND later.seq > coalesce(told.request, told.seq)
                    AND CASE WHEN later.kind = 'model_started' THEN event_json(later.body) -> 'key' IS NULL
                             ELSE later.kind IN ('run_started', 'run_finished') END
                  ORDER BY later.seq LIMIT 1) IS NOT NULL THEN 'closed'
            ELSE 'open' END AS status,
       coalesce(answered #>> '{decision,refuse,reason}', answered #>> '{decision,ask}', answered ->> 'failure')
           AS reason,
       answered #>> '{decision,edit}' AS edited, answered ->> 'by' AS decided_by,
       event_number(answered #> '{decision,until,at}') AS until,
       CASE answered #> '{decision,until,allow}' WHEN 'true' THEN 'allow' WHEN 'false' THEN 'deny' END
           AS until_decision,
       asked ->> 'preview' AS preview
FROM told;

-- The same as `Runtime::pending` of the library: change both.
CREATE OR REPLACE VIEW pending AS
WITH RECURSIVE
open AS (
    SELECT id AS session, run, parent, updated,
           coalesce((SELECT max(begun.seq) FROM events AS begun
                     WHERE begun.session = sessions.id AND begun.kind = 'run_started' AND begun.run = sessions.run), 0)
               AS begun
    FROM sessions WHERE status <> 'idle' AND run IS NOT NULL
),
-- The sessions above each, from below to the root.
above (session, below, id) AS (
    SELECT session, session, parent FROM open WHERE parent IS NOT NULL
    UNION
    SELECT above.session, higher.id, higher.parent FROM above JOIN sessions AS higher ON higher.id = above.id
    WHERE higher.parent IS NOT NULL
),
-- Nothing continues a session when a run above it is over, or is not the one that it belongs to: that is the run of
-- the event which the id below names.
lost AS (
    SELECT above.session
    FROM above JOIN sessions AS higher ON higher.id = above.id
    LEFT JOIN events AS link ON link.session = above.id
        AND link.seq = CASE WHEN starts_with(above.below, above.id || '.') THEN
            substring(substr(above.below, length(above.id) + 2) FROM '^([0-9]{1,18})\$\$[0-9]+$')::bigint END
    WHERE higher.run IS NULL OR link.run <> higher.run
),
tops AS (
    SELECT above.session, min(above.id) AS root
    FROM above JOIN sessions AS higher ON higher.id = above.id
    WHERE higher.parent IS NULL GROUP BY above.session
),
runs AS (
    SELECT open.session, coalesce(tops.root, open.session) AS root, open.run, open.updated, open.begun, first.agent
    FROM open
    LEFT JOIN tops ON tops.session = open.session
    LEFT JOIN events AS first ON first.session = open.session AND first.seq = open.begun
    WHERE open.session NOT IN (SELECT session FROM lost)
),
asked AS (
    SELECT runs.session, events.seq, events.kind, json.body ->> 'id' AS id,
           -- The part of the id that all questions about one call share.
           coalesce(substring(json.body ->> 'id' FROM '^(.*\$\$[0-9]+)-[^$]*$'), json.body ->> 'id') AS call,
           event_word(json.body -> 'decision') AS decision
    FROM runs
    JOIN events ON events.session = runs.session AND events.seq > runs.begun
        AND events.kind IN ('approval_requested', 'approval_decided')
    CROSS JOIN LATERAL (SELECT event_json(events.body) AS body OFFSET 0) AS json
),
ordered AS (
    SELECT asked.*,
           max(CASE WHEN decision NOT IN ('later', 'until') THEN seq END) OVER (PARTITION BY session, id) AS final
    FROM asked
),
questions AS (
    SELECT session, id, min(call) AS call, min(CASE WHEN kind = 'approval_requested' THEN seq END) AS first,
           max(CASE WHEN kind = 'approval_requested' THEN seq END) AS newest,
           max(CASE WHEN decision IN ('later', 'until') THEN seq END) AS decided
    FROM ordered WHERE seq > coalesce(final, 0) GROUP BY session, id
),
begun AS (
    SELECT runs.session, runs.run, runs.begun, started.seq, started.at, json.body, json.body ->> 'index' AS place,
           json.body ->> 'key' AS key
    FROM runs
    JOIN events AS started ON started.session = runs.session AND started.seq > runs.begun
        AND started.kind = 'tool_started'
    CROSS JOIN LATERAL (SELECT event_json(started.body) AS body OFFSET 0) AS json
    WHERE json.body ->> 'repeat' = 'external'
),
settled AS (
    SELECT begun.*,
           (SELECT finished.seq FROM events AS finished
            WHERE finished.session = begun.session AND finished.seq > begun.seq AND finished.kind = 'tool_finished'
              AND event_json(finished.body) ->> 'index' = begun.place
              AND event_json(finished.body) ->> 'key' IS NOT DISTINCT FROM begun.key
            ORDER BY finished.seq LIMIT 1) AS finished,
           CASE WHEN key IS NULL THEN
               (SELECT reply.seq FROM events AS reply
                WHERE reply.session = begun.session AND reply.seq < begun.seq AND reply.seq > begun.begun
                  AND reply.kind = 'model_finished' AND event_json(reply.body) ->> 'key' IS NULL
                ORDER BY reply.seq DESC LIMIT 1) END AS reply
    FROM begun
),
calls AS (
    SELECT settled.*, settled.session || '.' || coalesce(reply, begun) || '$$'
               || coalesce(body #>> '{key,ordinal}', place) || '-' || substr(replace(run, '-', ''), 17) AS id
    FROM settled
),
pauses AS (
    SELECT runs.session, paused.seq, json.body, event_word(json.body -> 'pause') AS pause,
           json.body #>> '{pause,signal,name}' AS name
    FROM runs
    JOIN events AS paused ON paused.session = runs.session AND paused.kind = 'run_paused'
        AND paused.seq = (SELECT max(newest.seq) FROM events AS newest
                          WHERE newest.session = runs.session AND newest.seq > runs.begun
                            AND newest.kind IN ('run_paused', 'run_resumed'))
    CROSS JOIN LATERAL (SELECT event_json(paused.body) AS body OFFSET 0) AS json
),
waits AS (
    SELECT pauses.*,
           CASE pause
               WHEN 'signal' THEN EXISTS (SELECT 1 FROM events AS came
                   WHERE came.session = pauses.session AND came.seq > pauses.seq AND came.kind = 'signal_received'
                     AND event_json(came.body) ->> 'name' = pauses.name)
               WHEN 'call' THEN EXISTS (SELECT 1 FROM calls
                   WHERE calls.session = pauses.session AND calls.finished > pauses.seq
                     AND calls.id = pauses.body #>> '{pause,call}')
               ELSE pause IN ('approval', 'deadline') AND EXISTS (SELECT 1 FROM asked
                   WHERE asked.session = pauses.session AND asked.seq > pauses.seq
                     AND asked.decision NOT IN ('later', 'until'))
           END AS answered
    FROM pauses
),
found AS (
    SELECT questions.session, 'approval' AS kind, questions.id, newest.body ->> 'tool' AS tool,
           newest.body ->> 'arguments' AS arguments, asked_first.at AS since,
           event_number(event_json(decided.body) #> '{decision,until,at}') AS until
    FROM questions
    JOIN events AS asked_first ON asked_first.session = questions.session AND asked_first.seq = questions.first
    JOIN events AS asked_last ON asked_last.session = questions.session AND asked_last.seq = questions.newest
    LEFT JOIN events AS decided ON decided.session = questions.session AND decided.seq = questions.decided
    CROSS JOIN LATERAL (SELECT event_json(asked_last.body) AS body OFFSET 0) AS newest
    -- A call that began or ended, or that somebody is asked about anew, waits for no answer to this question.
    WHERE NOT EXISTS (SELECT 1 FROM asked AS other
                      WHERE other.session = questions.session AND other.seq > questions.newest
                        AND other.kind = 'approval_requested' AND other.call = questions.call)
      AND NOT EXISTS (SELECT 1 FROM events AS ran
                      WHERE ran.session = questions.session AND ran.seq > questions.newest
                        AND ran.kind IN ('tool_started', 'tool_finished')
                        AND questions.call LIKE '%$$' || coalesce(event_json(ran.body) #>> '{key,ordinal}',
                                                                  event_json(ran.body) ->> 'index'))
    UNION ALL
    SELECT calls.session, 'call', calls.id, calls.body ->> 'tool',
           coalesce(calls.body ->> 'edited',
                    (SELECT part #>> '{tool_call,arguments}'
                     FROM jsonb_array_elements(event_list(event_json(reply.body) #> '{message,parts}')) AS part
                     WHERE part #>> '{tool_call,id}' = calls.body ->> 'call' LIMIT 1),
                    '{}'), calls.at, NULL
    FROM calls LEFT JOIN events AS reply ON reply.session = calls.session AND reply.seq = calls.reply
    WHERE calls.finished IS NULL
    UNION ALL
    SELECT waits.session, CASE WHEN pause = 'signal' AND NOT answered THEN 'signal' ELSE 'resume' END,
           CASE WHEN pause = 'signal' AND NOT answered THEN name END, NULL, NULL, runs.updated,
           CASE WHEN pause = 'signal' AND NOT answered THEN event_number(body #> '{pause,signal,until}') END
    FROM waits JOIN runs ON runs.session = waits.session
    WHERE answered OR pause IN ('signal', 'asked')
)
SELECT runs.session, runs.root, runs.agent, runs.run, found.kind, found.id, found.tool, found.arguments, found.since,
       found.until
FROM found JOIN runs ON runs.session = found.session
-- A condition from outside would make planners ask the parts above once for each row.
OFFSET 0;
