-- Version 6: views of what waits for input. `approvals` knows every decision, and shows a question that was put off
-- until a time as open; it has columns more. `pending` lists what all sessions wait for.

PRAGMA user_version = 6;

DROP VIEW approvals;

CREATE VIEW approvals AS
WITH asked AS (
    SELECT session, run, agent, seq, at, kind, json_extract(json_body, '$.id') AS id,
           CASE json_type(json_body, '$.decision')
               WHEN 'text' THEN json_extract(json_body, '$.decision')
               WHEN 'object' THEN (SELECT min(word.key) FROM json_each(json_body, '$.decision') AS word)
           END AS decision
    FROM events WHERE kind IN ('approval_requested', 'approval_decided')
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
                  AND json_extract(again.json_body, '$.id') IS questions.id
                ORDER BY again.seq LIMIT 1) ELSE first_at END AS asked_at
    FROM questions
),
told AS (
    SELECT answers.*, request.json_body AS asked, decided.json_body AS answered, decided.at AS decided_at,
           CASE json_type(decided.json_body, '$.decision')
               WHEN 'text' THEN json_extract(decided.json_body, '$.decision')
               WHEN 'object' THEN (SELECT min(word.key) FROM json_each(decided.json_body, '$.decision') AS word)
           END AS decision
    FROM answers
    LEFT JOIN events AS request ON request.session = answers.session AND request.seq = answers.request
    LEFT JOIN events AS decided ON decided.session = answers.session AND decided.seq = answers.answer
)
SELECT session, id, run, agent, seq, json_extract(asked, '$.tool') AS tool,
       json_extract(asked, '$.arguments') AS arguments, json_extract(asked, '$.rule') AS rule, decision, asked_at,
       decided_at, decided_at - asked_at AS micros,
       CASE WHEN decision NOT IN ('later', 'until') THEN 'answered'
            -- A run ended, another one began, or the next step did: the call has its result by then.
            WHEN (SELECT later.seq FROM events AS later
                  WHERE later.session = told.session AND later.seq > coalesce(told.request, told.seq)
                    AND (later.kind IN ('run_started', 'run_finished')
                         OR later.kind = 'model_started' AND json_extract(later.json_body, '$.key') IS NULL)
                  ORDER BY later.seq LIMIT 1) IS NOT NULL THEN 'closed'
            ELSE 'open' END AS status,
       coalesce(json_extract(answered, '$.decision.refuse.reason'), json_extract(answered, '$.decision.ask'),
                json_extract(answered, '$.failure')) AS reason,
       json_extract(answered, '$.decision.edit') AS edited, json_extract(answered, '$.by') AS decided_by,
       CASE json_type(answered, '$.decision.until.at') WHEN 'integer' THEN
           min(json_extract(answered, '$.decision.until.at'), 9223372036854775807) END AS until,
       CASE json_type(answered, '$.decision.until.allow') WHEN 'true' THEN 'allow' WHEN 'false' THEN 'deny' END
           AS until_decision,
       json_extract(asked, '$.preview') AS preview
FROM told;

-- The same as `Runtime::pending` of the library: change both.
CREATE VIEW pending AS
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
        AND link.seq = CASE WHEN above.below GLOB above.id || '.[0-9]*$$[0-9]*'
                            THEN CAST(substr(above.below, length(above.id) + 2) AS INTEGER) END
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
    SELECT about.*,
           -- The part of the id that all questions about one call share.
           CASE WHEN instr(substr(id, instr(id, '$$')), '-') > 0
                THEN substr(id, 1, instr(id, '$$') + instr(substr(id, instr(id, '$$')), '-') - 2) ELSE id END AS call
    FROM (SELECT runs.session, events.seq, events.kind, json_extract(events.json_body, '$.id') AS id,
                 CASE json_type(events.json_body, '$.decision')
                     WHEN 'text' THEN json_extract(events.json_body, '$.decision')
                     WHEN 'object' THEN (SELECT min(word.key) FROM json_each(events.json_body, '$.decision') AS word)
                 END AS decision
          FROM runs CROSS JOIN events
          WHERE events.kind IN ('approval_requested', 'approval_decided') AND events.session = runs.session
            AND events.seq > runs.begun) AS about
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
    SELECT runs.session, runs.run, runs.begun, started.seq, started.at, started.json_body,
           json_extract(started.json_body, '$.index') AS place, json_extract(started.json_body, '$.key') AS key
    FROM runs CROSS JOIN events AS started
    WHERE started.kind = 'tool_started' AND started.session = runs.session AND started.seq > runs.begun
      AND json_extract(started.json_body, '$.repeat') = 'external'
),
settled AS (
    SELECT begun.*,
           (SELECT finished.seq FROM events AS finished
            WHERE finished.session = begun.session AND finished.seq > begun.seq AND finished.kind = 'tool_finished'
              AND json_extract(finished.json_body, '$.index') = begun.place
              AND json_extract(finished.json_body, '$.key') IS begun.key
            ORDER BY finished.seq LIMIT 1) AS finished,
           CASE WHEN key IS NULL THEN
               (SELECT reply.seq FROM events AS reply
                WHERE reply.session = begun.session AND reply.seq < begun.seq AND reply.seq > begun.begun
                  AND reply.kind = 'model_finished' AND json_extract(reply.json_body, '$.key') IS NULL
                ORDER BY reply.seq DESC LIMIT 1) END AS reply
    FROM begun
),
calls AS (
    SELECT settled.*, settled.session || '.' || coalesce(reply, begun) || '$$'
               || coalesce(json_extract(key, '$.ordinal'), place) || '-' || substr(replace(run, '-', ''), 17) AS id
    FROM settled
),
pauses AS (
    SELECT runs.session, paused.seq, paused.json_body,
           CASE json_type(paused.json_body, '$.pause')
               WHEN 'text' THEN json_extract(paused.json_body, '$.pause')
               WHEN 'object' THEN (SELECT min(word.key) FROM json_each(paused.json_body, '$.pause') AS word)
           END AS pause
    FROM runs JOIN events AS paused ON paused.session = runs.session AND paused.kind = 'run_paused'
        AND paused.seq = (SELECT max(newest.seq) FROM events AS newest
                          WHERE newest.session = runs.session AND newest.seq > runs.begun
                            AND newest.kind IN ('run_paused', 'run_resumed'))
),
waits AS (
    SELECT pauses.*, json_extract(json_body, '$.pause.signal.name') AS name,
           CASE pause
               WHEN 'signal' THEN EXISTS (SELECT 1 FROM events AS came
                   WHERE came.session = pauses.session AND came.seq > pauses.seq AND came.kind = 'signal_received'
                     AND json_extract(came.json_body, '$.name') = json_extract(pauses.json_body, '$.pause.signal.name'))
               WHEN 'call' THEN EXISTS (SELECT 1 FROM calls
                   WHERE calls.session = pauses.session AND calls.finished > pauses.seq
                     AND calls.id = json_extract(pauses.json_body, '$.pause.call'))
               ELSE pause IN ('approval', 'deadline') AND EXISTS (SELECT 1 FROM asked
                   WHERE asked.session = pauses.session AND asked.seq > pauses.seq
                     AND asked.decision NOT IN ('later', 'until'))
           END AS answered
    FROM pauses
),
found AS (
    SELECT questions.session, 'approval' AS kind, questions.id, json_extract(newest.json_body, '$.tool') AS tool,
           json_extract(newest.json_body, '$.arguments') AS arguments, first.at AS since,
           CASE json_type(decided.json_body, '$.decision.until.at')
               WHEN 'integer' THEN json_extract(decided.json_body, '$.decision.until.at') END AS until
    FROM questions
    JOIN events AS first ON first.session = questions.session AND first.seq = questions.first
    JOIN events AS newest ON newest.session = questions.session AND newest.seq = questions.newest
    LEFT JOIN events AS decided ON decided.session = questions.session AND decided.seq = questions.decided
    -- A call that began or ended, or that somebody is asked about anew, waits for no answer to this question.
    WHERE NOT EXISTS (SELECT 1 FROM asked AS other
                      WHERE other.session = questions.session AND other.seq > questions.newest
                        AND other.kind = 'approval_requested' AND other.call = questions.call)
      AND NOT EXISTS (SELECT 1 FROM events AS ran
                      WHERE ran.session = questions.session AND ran.seq > questions.newest
                        AND ran.kind IN ('tool_started', 'tool_finished')
                        AND questions.call GLOB '*$$' || coalesce(json_extract(ran.json_body, '$.key.ordinal'),
                                                                  json_extract(ran.json_body, '$.index')))
    UNION ALL
    SELECT calls.session, 'call', calls.id, json_extract(calls.json_body, '$.tool'),
           coalesce(json_extract(calls.json_body, '$.edited'),
                    (SELECT json_extract(part.value, '$.tool_call.arguments')
                     FROM json_each(reply.json_body, '$.message.parts') AS part
                     WHERE part.type = 'object' AND json_extract(part.value, '$.tool_call.id')
                         = json_extract(calls.json_body, '$.call') LIMIT 1),
                    '{}'), calls.at, NULL
    FROM calls LEFT JOIN events AS reply ON reply.session = calls.session AND reply.seq = calls.reply
    WHERE calls.finished IS NULL
    UNION ALL
    SELECT waits.session, CASE WHEN pause = 'signal' AND NOT answered THEN 'signal' ELSE 'resume' END,
           CASE WHEN pause = 'signal' AND NOT answered THEN name END, NULL, NULL, runs.updated,
           CASE WHEN pause = 'signal' AND NOT answered AND json_type(json_body, '$.pause.signal.until') = 'integer'
                THEN json_extract(json_body, '$.pause.signal.until') END
    FROM waits JOIN runs ON runs.session = waits.session
    WHERE answered OR pause IN ('signal', 'asked')
)
SELECT runs.session, runs.root, runs.agent, runs.run, found.kind, found.id, found.tool, found.arguments, found.since,
       min(found.until, 9223372036854775807) AS until
FROM found JOIN runs ON runs.session = found.session;
