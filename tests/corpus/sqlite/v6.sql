-- A database of version 6 as it was released. Never edit this file: it stands for the files that users have.
PRAGMA application_id = 1164866663;
PRAGMA user_version = 6;
CREATE TABLE sessions (
    id                 TEXT    NOT NULL PRIMARY KEY,
    parent             TEXT             REFERENCES sessions (id) ON DELETE CASCADE,
    role               TEXT    NOT NULL,
    created            INTEGER NOT NULL,
    seq                INTEGER NOT NULL CHECK (seq >= 0),
    status             TEXT    NOT NULL CHECK (status IN ('idle', 'running', 'paused')),
    run                TEXT,
    agent              TEXT    NOT NULL,
    title              TEXT    NOT NULL,
    messages           INTEGER NOT NULL CHECK (messages >= 0),
    input_tokens       INTEGER CHECK (input_tokens >= 0),
    output_tokens      INTEGER CHECK (output_tokens >= 0),
    cache_read_tokens  INTEGER CHECK (cache_read_tokens >= 0),
    cache_write_tokens INTEGER CHECK (cache_write_tokens >= 0),
    reasoning_tokens   INTEGER CHECK (reasoning_tokens >= 0),
    cost_pico          INTEGER CHECK (cost_pico >= 0),
    updated            INTEGER NOT NULL
, lease_owner      INTEGER, lease_generation INTEGER CHECK (lease_generation >= 0), lease_until      INTEGER
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL) AND (lease_generation IS NULL) = (lease_until IS NULL)), checkpoint       INTEGER NOT NULL DEFAULT 0 CHECK (checkpoint >= 0)) STRICT;
CREATE TABLE events (
    session TEXT    NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    seq     INTEGER NOT NULL CHECK (seq > 0),
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    run     TEXT    NOT NULL,
    agent   TEXT    NOT NULL,
    writer  INTEGER NOT NULL,
    body    TEXT    NOT NULL, json_body TEXT GENERATED ALWAYS AS (CASE WHEN json_valid(body) THEN body END) VIRTUAL,
    PRIMARY KEY (session, seq)
) STRICT;
INSERT INTO sessions VALUES ('killed', NULL, 'user', 1767225600000000, 4, 'running', '01a20e87-2d06-7c01-bbef-926d392cff9d', 'lead', 'Look.', 2, 1000, 10, NULL, NULL, NULL, 1010000000, 1767225600000000, -4847902651194532443, 1, 1767225630000000, 0);
INSERT INTO sessions VALUES ('put_off', NULL, 'user', 1767225600000000, 5, 'paused', '01a20e87-2d04-7cb5-9f56-30486bfc5e5d', 'lead', 'Go on.', 2, 1000, 10, NULL, NULL, NULL, 1010000000, 1767225660000000, 4839281279052637684, 1, 0, 0);
INSERT INTO sessions VALUES ('trip', NULL, 'user', 1767225600000000, 23, 'idle', NULL, 'lead', 'Draw a map.', 8, 46000, 400, NULL, NULL, NULL, 46400000000, 1767225675000000, 1087476863036122913, 1, 0, 0);
INSERT INTO sessions VALUES ('trip.10$$0', 'trip', 'child', 1767225614000000, 4, 'idle', NULL, 'scout', 'Sub-agent scout', 2, 2000, 10, NULL, NULL, NULL, 2010000000, 1767225614000000, 1087476863036122913, 1, 0, 0);
INSERT INTO sessions VALUES ('trip.10$$1', 'trip', 'child', 1767225614000000, 4, 'idle', NULL, 'scout', 'Sub-agent scout', 2, 3000, 20, NULL, NULL, NULL, 3020000000, 1767225614000000, 1087476863036122913, 1, 0, 0);
INSERT INTO sessions VALUES ('refused', NULL, 'user', 1767225660000000, 7, 'idle', NULL, 'lead', 'Go on.', 3, 1000, 10, NULL, NULL, NULL, 1010000000, 1767225720000000, 4839281279052637684, 1, 0, 0);
INSERT INTO sessions VALUES ('broken', NULL, 'user', 1767225720000000, 4, 'idle', NULL, 'lead', 'Go on.', 1, NULL, NULL, NULL, NULL, NULL, 0, 1767225720000000, 4839281279052637684, 1, 0, 0);
INSERT INTO sessions VALUES ('clerk', NULL, 'user', 1767225720000000, 4, 'idle', NULL, 'clerk', 'File this.', 2, 500, 5, NULL, NULL, NULL, NULL, 1767225720000000, 4839281279052637684, 1, 0, 0);
INSERT INTO sessions VALUES ('ruled_out', NULL, 'user', 1767225720000000, 5, 'idle', NULL, 'lead', 'Go on.', 3, 1000, 10, NULL, NULL, NULL, 1010000000, 1767225720000000, 4839281279052637684, 1, 0, 0);
INSERT INTO events VALUES ('broken', 1, 1767225720000000, 'run_started', '01a20e87-2d06-7316-8d53-7443e94f6806', 'lead', 1, '{"format":1,"agent":"lead","prompt":{"role":"user","parts":[{"text":"Go on."}]},"named_by_run":true}');
INSERT INTO events VALUES ('broken', 2, 1767225720000000, 'model_started', '01a20e87-2d06-7316-8d53-7443e94f6806', 'lead', 1, '{"step":1,"provider":"north","model":"large-1","request":"01a20e87-2d06-7316-8d53-7443e94f6807","contents":{}}');
INSERT INTO events VALUES ('broken', 3, 1767225720000000, 'model_finished', '01a20e87-2d06-7316-8d53-7443e94f6806', 'lead', 1, '{"step":1,"message":{"role":"assistant","parts":[]},"finish":{"reason":"error"},"usage":{},"cost":0,"request":"01a20e87-2d06-7316-8d53-7443e94f6807","micros":0,"error":{"kind":"authentication","retry":"permanent","message":"the key was refused","context":"model.stream"}}');
INSERT INTO events VALUES ('broken', 4, 1767225720000000, 'run_finished', '01a20e87-2d06-7316-8d53-7443e94f6806', 'lead', 1, '{"outcome":{"status":{"failed":{"kind":"authentication","retry":"permanent","message":"the key was refused","context":"model.stream"}},"text":"","usage":{},"cost":0,"steps":1}}');
INSERT INTO events VALUES ('clerk', 1, 1767225720000000, 'run_started', '01a20e87-2d06-7537-8499-8ca98e541ed8', 'clerk', 1, '{"format":1,"agent":"clerk","prompt":{"role":"user","parts":[{"text":"File this."}]},"named_by_run":true}');
INSERT INTO events VALUES ('clerk', 2, 1767225720000000, 'model_started', '01a20e87-2d06-7537-8499-8ca98e541ed8', 'clerk', 1, '{"step":0,"provider":"east","model":"free-1","request":"01a20e87-2d06-7537-8499-8caa8e541ed8","key":{"ordinal":0,"digest":"f6b81a49ccfa29c6a4100de50c204974"},"messages":"774a483d614a9aef56411718801af66a","contents":{"774a483d614a9aef56411718801af66a":"[\"8c099327e3e6b108dba4881bbf09f909\"]","8c099327e3e6b108dba4881bbf09f909":"[\"ba680b9440ffc57a14d62721f931dacc\"]","ba680b9440ffc57a14d62721f931dacc":"{\"role\":\"user\",\"parts\":[{\"text\":\"File this.\"}]}"}}');
INSERT INTO events VALUES ('clerk', 3, 1767225720000000, 'model_finished', '01a20e87-2d06-7537-8499-8ca98e541ed8', 'clerk', 1, '{"step":0,"message":{"role":"assistant","parts":[{"text":"two pages"}]},"finish":{"reason":"stop"},"usage":{"input":500,"output":5},"request":"01a20e87-2d06-7537-8499-8caa8e541ed8","micros":0,"key":{"ordinal":0,"digest":"f6b81a49ccfa29c6a4100de50c204974"}}');
INSERT INTO events VALUES ('clerk', 4, 1767225720000000, 'run_finished', '01a20e87-2d06-7537-8499-8ca98e541ed8', 'clerk', 1, '{"outcome":{"status":"completed","text":"filed: two pages","usage":{"input":500,"output":5},"cost":null,"steps":1}}');
INSERT INTO events VALUES ('killed', 1, 1767225600000000, 'run_started', '01a20e87-2d06-7c01-bbef-926d392cff9d', 'lead', 1, '{"format":1,"agent":"lead","prompt":{"role":"user","parts":[{"text":"Look."}]},"named_by_run":true}');
INSERT INTO events VALUES ('killed', 2, 1767225600000000, 'model_started', '01a20e87-2d06-7c01-bbef-926d392cff9d', 'lead', 1, '{"step":1,"provider":"north","model":"large-1","request":"01a20e87-2d06-7c01-bbef-926d392cff9e","tools":"5af9902273d8db474df1a29a64992afe","contents":{"5af9902273d8db474df1a29a64992afe":"[{\"name\":\"look\",\"description\":\"A tool of a test.\",\"schema\":{\"type\":\"object\"},\"access\":\"read\"}]"}}');
INSERT INTO events VALUES ('killed', 3, 1767225600000000, 'model_finished', '01a20e87-2d06-7c01-bbef-926d392cff9d', 'lead', 1, '{"step":1,"message":{"role":"assistant","parts":[{"tool_call":{"id":"call_0","name":"look","arguments":{}}}]},"finish":{"reason":"tool_calls"},"usage":{"input":1000,"output":10},"cost":1010000000,"request":"01a20e87-2d06-7c01-bbef-926d392cff9e","micros":0}');
INSERT INTO events VALUES ('killed', 4, 1767225600000000, 'tool_started', '01a20e87-2d06-7c01-bbef-926d392cff9d', 'lead', 1, '{"index":0,"call":"call_0","tool":"look","repeat":"safe","allowed_by":"default"}');
INSERT INTO events VALUES ('put_off', 1, 1767225600000000, 'run_started', '01a20e87-2d04-7cb5-9f56-30486bfc5e5d', 'lead', 1, '{"format":1,"agent":"lead","prompt":{"role":"user","parts":[{"text":"Go on."}]},"named_by_run":true}');
INSERT INTO events VALUES ('put_off', 2, 1767225600000000, 'model_started', '01a20e87-2d04-7cb5-9f56-30486bfc5e5d', 'lead', 1, '{"step":1,"provider":"north","model":"large-1","request":"01a20e87-2d04-7cb5-9f56-30486bfc5e5e","tools":"dc5c7ab18ab99507006fd34e6018c6e7","contents":{"dc5c7ab18ab99507006fd34e6018c6e7":"[{\"name\":\"launch\",\"description\":\"A tool of a test.\",\"schema\":{\"type\":\"object\"},\"access\":\"execute\"},{\"name\":\"write\",\"description\":\"A tool of a test.\",\"schema\":{\"type\":\"object\"},\"access\":\"write\"}]"}}');
INSERT INTO events VALUES ('put_off', 3, 1767225600000000, 'model_finished', '01a20e87-2d04-7cb5-9f56-30486bfc5e5d', 'lead', 1, '{"step":1,"message":{"role":"assistant","parts":[{"tool_call":{"id":"call_0","name":"write","arguments":{"path":"later"}}}]},"finish":{"reason":"tool_calls"},"usage":{"input":1000,"output":10},"cost":1010000000,"request":"01a20e87-2d04-7cb5-9f56-30486bfc5e5e","micros":0}');
INSERT INTO events VALUES ('put_off', 4, 1767225600000000, 'approval_requested', '01a20e87-2d04-7cb5-9f56-30486bfc5e5d', 'lead', 1, '{"id":"put_off.3$$0-125c198e4925e8c0","session":"put_off","run":"01a20e87-2d04-7cb5-9f56-30486bfc5e5d","agent":"lead","tool":"write","arguments":{"path":"later"},"footprint":{"access":"write"},"rule":"default","digest":"ad9a966a19d93c61a7640883d0fb4b4c","grant":"65ab16577b39f2181d0fa11adc1cbdb3"}');
INSERT INTO events VALUES ('put_off', 5, 1767225660000000, 'run_paused', '01a20e87-2d04-7cb5-9f56-30486bfc5e5d', 'lead', 1, '{"pause":{"approval":"put_off.3$$0-125c198e4925e8c0"}}');
INSERT INTO events VALUES ('refused', 1, 1767225660000000, 'run_started', '01a20e87-2d05-746b-8598-91671698cc3f', 'lead', 1, '{"format":1,"agent":"lead","prompt":{"role":"user","parts":[{"text":"Go on."}]},"named_by_run":true}');
INSERT INTO events VALUES ('refused', 2, 1767225660000000, 'model_started', '01a20e87-2d05-746b-8598-91671698cc3f', 'lead', 1, '{"step":1,"provider":"north","model":"large-1","request":"01a20e87-2d05-746b-8598-91671698cc40","tools":"dc5c7ab18ab99507006fd34e6018c6e7","contents":{"dc5c7ab18ab99507006fd34e6018c6e7":"[{\"name\":\"launch\",\"description\":\"A tool of a test.\",\"schema\":{\"type\":\"object\"},\"access\":\"execute\"},{\"name\":\"write\",\"description\":\"A tool of a test.\",\"schema\":{\"type\":\"object\"},\"access\":\"write\"}]"}}');
INSERT INTO events VALUES ('refused', 3, 1767225660000000, 'model_finished', '01a20e87-2d05-746b-8598-91671698cc3f', 'lead', 1, '{"step":1,"message":{"role":"assistant","parts":[{"tool_call":{"id":"call_0","name":"write","arguments":{"path":"/etc"}}}]},"finish":{"reason":"tool_calls"},"usage":{"input":1000,"output":10},"cost":1010000000,"request":"01a20e87-2d05-746b-8598-91671698cc40","micros":0}');
INSERT INTO events VALUES ('refused', 4, 1767225660000000, 'approval_requested', '01a20e87-2d05-746b-8598-91671698cc3f', 'lead', 1, '{"id":"refused.3$$0-9841a97e695a6470","session":"refused","run":"01a20e87-2d05-746b-8598-91671698cc3f","agent":"lead","tool":"write","arguments":{"path":"/etc"},"footprint":{"access":"write"},"rule":"default","digest":"bf665e55566a34f8cdfd860b7006ff04","grant":"65ab16577b39f2181d0fa11adc1cbdb3"}');
INSERT INTO events VALUES ('refused', 5, 1767225720000000, 'approval_decided', '01a20e87-2d05-746b-8598-91671698cc3f', 'lead', 1, '{"id":"refused.3$$0-9841a97e695a6470","decision":"deny","digest":"bf665e55566a34f8cdfd860b7006ff04"}');
INSERT INTO events VALUES ('refused', 6, 1767225720000000, 'tool_finished', '01a20e87-2d05-746b-8598-91671698cc3f', 'lead', 1, '{"index":0,"result":{"call":"call_0","name":"write","content":[{"text":"refused by the approver"}],"is_error":true},"stop_turn":true,"denied":true,"micros":0}');
INSERT INTO events VALUES ('refused', 7, 1767225720000000, 'run_finished', '01a20e87-2d05-746b-8598-91671698cc3f', 'lead', 1, '{"outcome":{"status":{"stopped":{"denied":"write"}},"text":"","usage":{"input":1000,"output":10},"cost":1010000000,"steps":1}}');
INSERT INTO events VALUES ('ruled_out', 1, 1767225720000000, 'run_started', '01a20e87-2d05-7e87-b98d-7e5714bd3d38', 'lead', 1, '{"format":1,"agent":"lead","prompt":{"role":"user","parts":[{"text":"Go on."}]},"named_by_run":true}');
INSERT INTO events VALUES ('ruled_out', 2, 1767225720000000, 'model_started', '01a20e87-2d05-7e87-b98d-7e5714bd3d38', 'lead', 1, '{"step":1,"provider":"north","model":"large-1","request":"01a20e87-2d05-7e87-b98d-7e5714bd3d39","tools":"dc5c7ab18ab99507006fd34e6018c6e7","contents":{"dc5c7ab18ab99507006fd34e6018c6e7":"[{\"name\":\"launch\",\"description\":\"A tool of a test.\",\"schema\":{\"type\":\"object\"},\"access\":\"execute\"},{\"name\":\"write\",\"description\":\"A tool of a test.\",\"schema\":{\"type\":\"object\"},\"access\":\"write\"}]"}}');
INSERT INTO events VALUES ('ruled_out', 3, 1767225720000000, 'model_finished', '01a20e87-2d05-7e87-b98d-7e5714bd3d38', 'lead', 1, '{"step":1,"message":{"role":"assistant","parts":[{"tool_call":{"id":"call_0","name":"launch","arguments":{"path":""}}}]},"finish":{"reason":"tool_calls"},"usage":{"input":1000,"output":10},"cost":1010000000,"request":"01a20e87-2d05-7e87-b98d-7e5714bd3d39","micros":0}');
INSERT INTO events VALUES ('ruled_out', 4, 1767225720000000, 'tool_finished', '01a20e87-2d05-7e87-b98d-7e5714bd3d38', 'lead', 1, '{"index":0,"result":{"call":"call_0","name":"launch","content":[{"text":"refused by the rule `deny launch`"}],"is_error":true},"stop_turn":true,"denied":true,"micros":0}');
INSERT INTO events VALUES ('ruled_out', 5, 1767225720000000, 'run_finished', '01a20e87-2d05-7e87-b98d-7e5714bd3d38', 'lead', 1, '{"outcome":{"status":{"stopped":{"denied":"launch"}},"text":"","usage":{"input":1000,"output":10},"cost":1010000000,"steps":1}}');
INSERT INTO events VALUES ('trip', 1, 1767225600000000, 'run_started', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"format":1,"agent":"lead","prompt":{"role":"user","parts":[{"text":"Draw a map."}]},"named_by_run":true}');
INSERT INTO events VALUES ('trip', 2, 1767225600000000, 'model_started', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"step":1,"provider":"north","model":"large-1","request":"01a20e87-2d02-7304-bbf4-0a095c0fde32","tools":"801632dd06bfb0157762bd6ae7824b8e","contents":{"801632dd06bfb0157762bd6ae7824b8e":"[{\"name\":\"fetch\",\"description\":\"A tool of a test.\",\"schema\":{\"type\":\"object\"},\"access\":\"read\"},{\"name\":\"look\",\"description\":\"A tool of a test.\",\"schema\":{\"type\":\"object\"},\"access\":\"read\"},{\"name\":\"scout\",\"description\":\"Asks another agent.\",\"schema\":{\"properties\":{\"task\":{\"type\":\"string\"}},\"type\":\"object\"},\"access\":\"read\"},{\"name\":\"write\",\"description\":\"A tool of a test.\",\"schema\":{\"type\":\"object\"},\"access\":\"write\"}]"}}');
INSERT INTO events VALUES ('trip', 3, 1767225600000000, 'model_restarted', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"step":1,"request":"01a20e87-2d02-7304-bbf4-0a095c0fde32","restart":{"attempt":2,"error":{"kind":"overloaded","retry":"temporary","message":"no room","context":"model.stream"},"delay":{"secs":5,"nanos":0}}}');
INSERT INTO events VALUES ('trip', 4, 1767225605000000, 'model_finished', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"step":1,"message":{"role":"assistant","parts":[{"tool_call":{"id":"call_0","name":"look","arguments":{"path":"a"}}},{"tool_call":{"id":"call_1","name":"fetch","arguments":{"url":"b"}}}]},"finish":{"reason":"tool_calls"},"usage":{"input":10000,"output":100},"cost":10100000000,"request":"01a20e87-2d02-7304-bbf4-0a095c0fde32","attempt":2,"micros":5000000}');
INSERT INTO events VALUES ('trip', 5, 1767225605000000, 'tool_started', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"index":0,"call":"call_0","tool":"look","repeat":"safe","allowed_by":"default"}');
INSERT INTO events VALUES ('trip', 6, 1767225605000000, 'tool_started', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"index":1,"call":"call_1","tool":"fetch","repeat":"safe","allowed_by":"default"}');
INSERT INTO events VALUES ('trip', 7, 1767225607000000, 'tool_finished', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"index":0,"result":{"call":"call_0","name":"look","content":[{"text":"a\u0000tree"}]},"micros":2000000}');
INSERT INTO events VALUES ('trip', 8, 1767225614000000, 'tool_finished', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"index":1,"result":{"call":"call_1","name":"fetch","content":[{"text":"no such page"}],"is_error":true},"micros":9000000}');
INSERT INTO events VALUES ('trip', 9, 1767225614000000, 'model_started', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"step":2,"provider":"north","model":"large-1","request":"01a20e87-2d02-7304-bbf4-0a095c0fde33","tools":"801632dd06bfb0157762bd6ae7824b8e","contents":{}}');
INSERT INTO events VALUES ('trip', 10, 1767225614000000, 'model_finished', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"step":2,"message":{"role":"assistant","parts":[{"tool_call":{"id":"call_0","name":"scout","arguments":{"task":"left"}}},{"tool_call":{"id":"call_1","name":"scout","arguments":{"task":"right"}}}]},"finish":{"reason":"tool_calls"},"usage":{"input":11000,"output":100},"cost":11100000000,"request":"01a20e87-2d02-7304-bbf4-0a095c0fde33","micros":0}');
INSERT INTO events VALUES ('trip', 11, 1767225614000000, 'tool_started', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"index":0,"call":"call_0","tool":"scout","repeat":"resume","allowed_by":"default"}');
INSERT INTO events VALUES ('trip', 12, 1767225614000000, 'tool_started', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"index":1,"call":"call_1","tool":"scout","repeat":"resume","allowed_by":"default"}');
INSERT INTO events VALUES ('trip', 13, 1767225614000000, 'tool_finished', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"index":0,"result":{"call":"call_0","name":"scout","content":[{"text":"trees"}]},"micros":0}');
INSERT INTO events VALUES ('trip', 14, 1767225614000000, 'tool_finished', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"index":1,"result":{"call":"call_1","name":"scout","content":[{"text":"water"}]},"micros":0}');
INSERT INTO events VALUES ('trip', 15, 1767225614000000, 'model_started', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"step":3,"provider":"north","model":"large-1","request":"01a20e87-2d02-7304-bbf4-0a095c0fde34","tools":"801632dd06bfb0157762bd6ae7824b8e","contents":{}}');
INSERT INTO events VALUES ('trip', 16, 1767225614000000, 'model_finished', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"step":3,"message":{"role":"assistant","parts":[{"tool_call":{"id":"call_0","name":"write","arguments":{"path":"map"}}}]},"finish":{"reason":"tool_calls"},"usage":{"input":12000,"output":100},"cost":12100000000,"request":"01a20e87-2d02-7304-bbf4-0a095c0fde34","micros":0}');
INSERT INTO events VALUES ('trip', 17, 1767225614000000, 'approval_requested', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"id":"trip.16$$0-49154f9234230f9f","session":"trip","run":"01a20e87-2d02-7304-bbf4-0a095c0fde31","agent":"lead","tool":"write","arguments":{"path":"map"},"footprint":{"access":"write"},"rule":"default","digest":"55393eea19d3deedf17d0ca69ae995ee","grant":"65ab16577b39f2181d0fa11adc1cbdb3"}');
INSERT INTO events VALUES ('trip', 18, 1767225674000000, 'approval_decided', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"id":"trip.16$$0-49154f9234230f9f","decision":"allow","digest":"55393eea19d3deedf17d0ca69ae995ee"}');
INSERT INTO events VALUES ('trip', 19, 1767225674000000, 'tool_started', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"index":0,"call":"call_0","tool":"write","repeat":"once","allowed_by":"approver"}');
INSERT INTO events VALUES ('trip', 20, 1767225675000000, 'tool_finished', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"index":0,"result":{"call":"call_0","name":"write","content":[{"text":"ok"}]},"micros":1000000}');
INSERT INTO events VALUES ('trip', 21, 1767225675000000, 'model_started', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"step":4,"provider":"north","model":"large-1","request":"01a20e87-2d02-7304-bbf4-0a095c0fde35","tools":"801632dd06bfb0157762bd6ae7824b8e","contents":{}}');
INSERT INTO events VALUES ('trip', 22, 1767225675000000, 'model_finished', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"step":4,"message":{"role":"assistant","parts":[{"text":"The map is drawn."}]},"finish":{"reason":"stop"},"usage":{"input":13000,"output":100},"cost":13100000000,"request":"01a20e87-2d02-7304-bbf4-0a095c0fde35","micros":0}');
INSERT INTO events VALUES ('trip', 23, 1767225675000000, 'run_finished', '01a20e87-2d02-7304-bbf4-0a095c0fde31', 'lead', 1, '{"outcome":{"status":"completed","text":"The map is drawn.","usage":{"input":46000,"output":400},"cost":46400000000,"steps":4}}');
INSERT INTO events VALUES ('trip.10$$0', 1, 1767225614000000, 'run_started', '01a20e87-2d03-7c1f-8123-9772f74c49c8', 'lead/scout', 1, '{"format":1,"agent":"scout","prompt":{"role":"user","parts":[{"text":"left"}]},"title":"Sub-agent scout","named_by_run":true,"above":{"run":"01a20e87-2d02-7304-bbf4-0a095c0fde31","first":"01a20e87-2d02-7304-bbf4-0a095c0fde31","created":1767225600000000}}');
INSERT INTO events VALUES ('trip.10$$0', 2, 1767225614000000, 'model_started', '01a20e87-2d03-7c1f-8123-9772f74c49c8', 'lead/scout', 1, '{"step":1,"provider":"south","model":"small-1","request":"01a20e87-2d03-7c1f-8123-9772f74c49c9","contents":{}}');
INSERT INTO events VALUES ('trip.10$$0', 3, 1767225614000000, 'model_finished', '01a20e87-2d03-7c1f-8123-9772f74c49c8', 'lead/scout', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"trees"}]},"finish":{"reason":"stop"},"usage":{"input":2000,"output":10},"cost":2010000000,"request":"01a20e87-2d03-7c1f-8123-9772f74c49c9","micros":0}');
INSERT INTO events VALUES ('trip.10$$0', 4, 1767225614000000, 'run_finished', '01a20e87-2d03-7c1f-8123-9772f74c49c8', 'lead/scout', 1, '{"outcome":{"status":"completed","text":"trees","usage":{"input":2000,"output":10},"cost":2010000000,"steps":1}}');
INSERT INTO events VALUES ('trip.10$$1', 1, 1767225614000000, 'run_started', '01a20e87-2d03-7f03-9176-e9dade163508', 'lead/scout', 1, '{"format":1,"agent":"scout","prompt":{"role":"user","parts":[{"text":"right"}]},"title":"Sub-agent scout","named_by_run":true,"above":{"run":"01a20e87-2d02-7304-bbf4-0a095c0fde31","first":"01a20e87-2d02-7304-bbf4-0a095c0fde31","created":1767225600000000}}');
INSERT INTO events VALUES ('trip.10$$1', 2, 1767225614000000, 'model_started', '01a20e87-2d03-7f03-9176-e9dade163508', 'lead/scout', 1, '{"step":1,"provider":"south","model":"small-1","request":"01a20e87-2d03-7f03-9176-e9dade163509","contents":{}}');
INSERT INTO events VALUES ('trip.10$$1', 3, 1767225614000000, 'model_finished', '01a20e87-2d03-7f03-9176-e9dade163508', 'lead/scout', 1, '{"step":1,"message":{"role":"assistant","parts":[{"text":"water"}]},"finish":{"reason":"stop"},"usage":{"input":3000,"output":20},"cost":3020000000,"request":"01a20e87-2d03-7f03-9176-e9dade163509","micros":0}');
INSERT INTO events VALUES ('trip.10$$1', 4, 1767225614000000, 'run_finished', '01a20e87-2d03-7f03-9176-e9dade163508', 'lead/scout', 1, '{"outcome":{"status":"completed","text":"water","usage":{"input":3000,"output":20},"cost":3020000000,"steps":1}}');
CREATE INDEX sessions_by_update ON sessions (updated DESC, id);
CREATE INDEX sessions_by_parent ON sessions (parent, updated DESC, id);
CREATE INDEX events_by_kind ON events (kind, session, seq);
CREATE VIEW clock AS
SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) AS now;
CREATE VIEW model_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, finished.json_body,
           (SELECT started.seq FROM events AS started
            WHERE started.session = finished.session AND started.seq < finished.seq
              AND started.kind = 'model_started' AND started.run = finished.run
              AND json_extract(started.json_body, '$.request') IS json_extract(finished.json_body, '$.request')
            ORDER BY started.seq DESC LIMIT 1) AS started
    FROM events AS finished
    WHERE finished.kind = 'model_finished'
    UNION ALL
    SELECT begun.session, begun.run, begun.agent, begun.seq, NULL, NULL, begun.seq
    FROM events AS begun
    WHERE begun.kind = 'model_started'
      -- No end came before the next run's begin. (NOT EXISTS would let planners join all with all.)
      AND coalesce((SELECT later.kind FROM events AS later
                    WHERE later.session = begun.session AND later.seq > begun.seq
                      AND (later.kind = 'run_started'
                           OR later.kind IN ('model_started', 'model_finished') AND later.run = begun.run
                           AND json_extract(later.json_body, '$.request') IS json_extract(begun.json_body, '$.request'))
                    ORDER BY later.seq LIMIT 1), 'run_started') = 'run_started'
)
SELECT calls.session, calls.run, calls.agent, calls.seq,
       coalesce(json_extract(calls.json_body, '$.step'), json_extract(started.json_body, '$.step')) AS step,
       coalesce((SELECT json_extract(restart.json_body, '$.restart.provider') FROM events AS restart
                 WHERE restart.session = calls.session AND restart.seq > calls.started AND restart.seq < calls.seq
                   AND restart.kind = 'model_restarted' AND restart.run = calls.run
                   AND json_extract(restart.json_body, '$.request') IS json_extract(calls.json_body, '$.request')
                   AND json_extract(restart.json_body, '$.restart.provider') IS NOT NULL
                 ORDER BY restart.seq DESC LIMIT 1),
                json_extract(started.json_body, '$.provider')) AS provider,
       coalesce((SELECT json_extract(restart.json_body, '$.restart.model') FROM events AS restart
                 WHERE restart.session = calls.session AND restart.seq > calls.started AND restart.seq < calls.seq
                   AND restart.kind = 'model_restarted' AND restart.run = calls.run
                   AND json_extract(restart.json_body, '$.request') IS json_extract(calls.json_body, '$.request')
                   AND json_extract(restart.json_body, '$.restart.model') IS NOT NULL
                 ORDER BY restart.seq DESC LIMIT 1),
                json_extract(started.json_body, '$.model')) AS model,
       json_extract(calls.json_body, '$.model') AS reported_model,
       CASE WHEN calls.finished_at IS NOT NULL THEN coalesce(json_extract(calls.json_body, '$.attempt'), 1) END AS attempts,
       started.at AS started_at, calls.finished_at, json_extract(calls.json_body, '$.micros') AS micros,
       json_extract(calls.json_body, '$.finish.reason') AS finish,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.input') END
                    + CASE json_type(calls.json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.input') END,
                    CASE json_type(calls.json_body, '$.usage.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.input') END,
                    CASE json_type(calls.json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.input') END),
           9223372036854775807) AS input_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.output') END
                    + CASE json_type(calls.json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.output') END,
                    CASE json_type(calls.json_body, '$.usage.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.output') END,
                    CASE json_type(calls.json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.output') END),
           9223372036854775807) AS output_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_read') END
                    + CASE json_type(calls.json_body, '$.wasted.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_read') END,
                    CASE json_type(calls.json_body, '$.usage.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_read') END,
                    CASE json_type(calls.json_body, '$.wasted.cache_read') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_read') END),
           9223372036854775807) AS cache_read_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_write') END
                    + CASE json_type(calls.json_body, '$.wasted.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_write') END,
                    CASE json_type(calls.json_body, '$.usage.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.cache_write') END,
                    CASE json_type(calls.json_body, '$.wasted.cache_write') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.cache_write') END),
           9223372036854775807) AS cache_write_tokens,
       min(coalesce(CASE json_type(calls.json_body, '$.usage.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.reasoning') END
                    + CASE json_type(calls.json_body, '$.wasted.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.reasoning') END,
                    CASE json_type(calls.json_body, '$.usage.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.usage.reasoning') END,
                    CASE json_type(calls.json_body, '$.wasted.reasoning') WHEN 'integer' THEN json_extract(calls.json_body, '$.wasted.reasoning') END),
           9223372036854775807) AS reasoning_tokens,
       min(CASE json_type(calls.json_body, '$.cost') WHEN 'integer' THEN json_extract(calls.json_body, '$.cost') END, 9223372036854775807) AS cost_pico,
       json_extract(calls.json_body, '$.error.kind') AS error,
       json_extract(calls.json_body, '$.error.message') AS error_message
FROM calls
LEFT JOIN events AS started ON started.session = calls.session AND started.seq = calls.started;
CREATE VIEW tool_calls AS
WITH calls AS (
    SELECT finished.session, finished.run, finished.agent, finished.seq, finished.at AS finished_at, finished.json_body,
           json_extract(finished.json_body, '$.index') AS place, json_extract(finished.json_body, '$.result.call') AS call,
           json_extract(finished.json_body, '$.result.name') AS tool,
           -- What came last before the result: the claim of this call, or the reply that asked for it.
           (SELECT started.seq FROM events AS started
            WHERE started.session = finished.session AND started.seq < finished.seq AND started.run = finished.run
              AND (started.kind = 'tool_started'
                   AND json_extract(started.json_body, '$.index') = json_extract(finished.json_body, '$.index')
                   AND json_extract(started.json_body, '$.key.ordinal') IS json_extract(finished.json_body, '$.key.ordinal')
                   OR started.kind = 'model_finished' AND json_extract(finished.json_body, '$.key') IS NULL
                   AND json_extract(started.json_body, '$.key') IS NULL
                   OR started.kind = 'run_started')
            ORDER BY started.seq DESC LIMIT 1) AS started,
           json_extract(finished.json_body, '$.key') IS NULL AS asked
    FROM events AS finished
    WHERE finished.kind = 'tool_finished'
    UNION ALL
    SELECT begun.session, begun.run, begun.agent, begun.seq, NULL, NULL,
           json_extract(begun.json_body, '$.index'), json_extract(begun.json_body, '$.call'), json_extract(begun.json_body, '$.tool'),
           begun.seq, json_extract(begun.json_body, '$.key') IS NULL
    FROM events AS begun
    WHERE begun.kind = 'tool_started'
      AND coalesce((SELECT later.kind FROM events AS later
                    WHERE later.session = begun.session AND later.seq > begun.seq
                      AND (later.kind = 'run_started'
                           OR later.kind = 'model_finished' AND json_extract(later.json_body, '$.key') IS NULL
                           AND json_extract(begun.json_body, '$.key') IS NULL
                           OR later.kind IN ('tool_started', 'tool_finished')
                           AND json_extract(later.json_body, '$.index') = json_extract(begun.json_body, '$.index')
                           AND json_extract(later.json_body, '$.key.ordinal') IS json_extract(begun.json_body, '$.key.ordinal'))
                    ORDER BY later.seq LIMIT 1), 'run_started') IN ('run_started', 'model_finished')
),
placed AS (
    SELECT calls.*,
           CASE WHEN asked THEN
               (SELECT reply.seq FROM events AS reply
                WHERE reply.session = calls.session AND reply.seq < calls.seq
                  AND reply.kind = 'model_finished' AND json_extract(reply.json_body, '$.key') IS NULL
                ORDER BY reply.seq DESC LIMIT 1) END AS message
    FROM calls
)
SELECT placed.session, placed.run, placed.agent, placed.seq, placed.message, placed.place,
       placed.session || '.' || placed.message || '$$' || placed.place AS id,
       placed.call, placed.tool,
       (SELECT CASE part.type WHEN 'object' THEN json_extract(part.value, '$.tool_call.arguments') END
        FROM json_each(reply.json_body, '$.message.parts') AS part
        WHERE CASE part.type WHEN 'object' THEN json_extract(part.value, '$.tool_call.id') END = placed.call LIMIT 1) AS arguments,
       json_extract(started.json_body, '$.allowed_by') AS allowed_by,
       CASE WHEN placed.finished_at IS NULL THEN 'unfinished'
            WHEN json_extract(placed.json_body, '$.denied') THEN 'denied'
            WHEN json_extract(placed.json_body, '$.result.is_error') THEN 'failed'
            ELSE 'succeeded' END AS status,
       CASE WHEN started.kind = 'tool_started' THEN started.at END AS started_at,
       placed.finished_at, json_extract(placed.json_body, '$.micros') AS micros,
       (SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, char(10))
        FROM json_each(placed.json_body, '$.result.content') AS part) AS output
FROM placed
LEFT JOIN events AS reply ON reply.session = placed.session AND reply.seq = placed.message
LEFT JOIN events AS started ON started.session = placed.session AND started.seq = placed.started;
CREATE VIEW messages AS
WITH said AS (
    SELECT session, run, agent, seq, at, kind,
           CASE kind
               WHEN 'run_started' THEN CASE json_type(json_body, '$.prompt') WHEN 'object' THEN json_extract(json_body, '$.prompt') END
               WHEN 'compacted' THEN CASE json_type(json_body, '$.summary') WHEN 'object' THEN json_extract(json_body, '$.summary') END
               WHEN 'tool_finished' THEN json_object('role', 'tool', 'parts', json_array(
                   json_object('tool_result', CASE json_type(json_body, '$.result') WHEN 'object' THEN json_extract(json_body, '$.result') END)))
               WHEN 'run_finished' THEN json_object('role', 'assistant', 'parts', json_array(
                   json_object('text', CASE json_type(json_body, '$.outcome.text') WHEN 'text' THEN json_extract(json_body, '$.outcome.text') END)))
               ELSE CASE json_type(json_body, '$.message') WHEN 'object' THEN json_extract(json_body, '$.message') END
           END AS message
    FROM events AS said
    WHERE kind IN ('run_started', 'message_added', 'compacted')
       OR kind IN ('model_finished', 'tool_finished') AND json_extract(json_body, '$.key') IS NULL
       -- The answer of an agent whose model calls, if any, are no part of the conversation.
       OR kind = 'run_finished' AND json_extract(json_body, '$.outcome.status') = 'completed'
          AND json_extract(json_body, '$.outcome.text') <> ''
          AND 'run_started' = (SELECT before.kind FROM events AS before
                               WHERE before.session = said.session AND before.seq < said.seq AND before.run = said.run
                                 AND (before.kind = 'run_started' OR before.kind = 'model_finished'
                                                                     AND json_extract(before.json_body, '$.key') IS NULL)
                               ORDER BY before.seq DESC LIMIT 1)
)
SELECT session, run, agent, seq, at, kind, json_extract(message, '$.role') AS role,
       coalesce((SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, '')
                 FROM json_each(message, '$.parts') AS part),
                (SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, char(10))
                 FROM json_each(message, '$.parts[0].tool_result.content') AS part),
                '') AS text,
       json_extract(message, '$.parts') AS parts
FROM said
WHERE json_array_length(message, '$.parts') > 0;
CREATE VIEW agent_plans AS
WITH lists AS (
    SELECT session, run, agent, seq, at, json_body, max(seq) OVER (PARTITION BY session) AS newest
    FROM events WHERE kind = 'todos_changed'
)
SELECT lists.session, lists.run, lists.agent, lists.seq, lists.at, item.key AS place,
       CASE item.type WHEN 'object' THEN json_extract(item.value, '$.content') END AS content,
       CASE item.type WHEN 'object' THEN json_extract(item.value, '$.status') END AS status,
       CASE item.type WHEN 'object' THEN json_extract(item.value, '$.active_form') END AS active_form,
       CASE WHEN lists.seq = lists.newest THEN 1 ELSE 0 END AS latest
FROM lists, json_each(lists.json_body, '$.todos') AS item;
CREATE VIEW agent_chat_sessions AS
SELECT id AS session, title, agent, status, run, messages, created, updated
FROM sessions WHERE parent IS NULL;
CREATE VIEW agent_chat_messages AS
SELECT messages.session, messages.run, messages.agent, messages.seq, messages.at, messages.role, messages.text
FROM messages JOIN sessions ON sessions.id = messages.session
WHERE sessions.parent IS NULL AND messages.role IN ('user', 'assistant') AND messages.kind <> 'compacted'
  AND messages.text <> '';
CREATE VIEW session_totals AS
WITH RECURSIVE below (top, id) AS (
    SELECT parent, id FROM sessions WHERE parent IS NOT NULL
    UNION ALL
    SELECT below.top, child.id FROM below JOIN sessions AS child ON child.parent = below.id
),
sums AS (
    SELECT below.top, count(*) AS sessions,
           CASE WHEN sum(input_tokens / 1000000000) + sum(input_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(input_tokens / 1000000000) * 1000000000 + sum(input_tokens % 1000000000) END AS input_tokens,
           CASE WHEN sum(output_tokens / 1000000000) + sum(output_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(output_tokens / 1000000000) * 1000000000 + sum(output_tokens % 1000000000) END AS output_tokens,
           CASE WHEN count(*) = count(cost_pico) THEN CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END END AS cost_pico
    FROM below JOIN sessions ON sessions.id = below.id GROUP BY below.top
)
SELECT own.id AS session, own.parent, coalesce(sums.sessions, 0) AS descendants,
       own.input_tokens AS own_input_tokens, own.output_tokens AS own_output_tokens, own.cost_pico AS own_cost_pico,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.input_tokens END AS descendants_input_tokens,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.output_tokens END AS descendants_output_tokens,
       CASE WHEN sums.top IS NULL THEN 0 ELSE sums.cost_pico END AS descendants_cost_pico,
       min(coalesce(own.input_tokens + sums.input_tokens, own.input_tokens, sums.input_tokens),
           9223372036854775807) AS total_input_tokens,
       min(coalesce(own.output_tokens + sums.output_tokens, own.output_tokens, sums.output_tokens),
           9223372036854775807) AS total_output_tokens,
       min(own.cost_pico + CASE WHEN sums.top IS NULL THEN 0 ELSE sums.cost_pico END, 9223372036854775807)
           AS total_cost_pico
FROM sessions AS own LEFT JOIN sums ON sums.top = own.id;
CREATE VIEW agent_executions AS
WITH marks AS (
    SELECT session, run, agent, seq, at, kind,
           (SELECT group_concat(CASE part.type WHEN 'object' THEN json_extract(part.value, '$.text') END, '')
            FROM json_each(json_body, '$.prompt.parts') AS part) AS prompt,
           json_extract(json_body, '$.count') AS resumed,
           CASE json_type(json_body, '$.outcome.status')
               WHEN 'text' THEN json_extract(json_body, '$.outcome.status')
               WHEN 'object' THEN (SELECT word.key FROM json_each(json_body, '$.outcome.status') AS word)
           END AS status,
           coalesce(json_extract(json_body, '$.outcome.status.failed.kind'),
                    CASE json_type(json_body, '$.outcome.status.stopped')
                        WHEN 'text' THEN json_extract(json_body, '$.outcome.status.stopped')
                        WHEN 'object' THEN (SELECT word.key FROM json_each(json_body, '$.outcome.status.stopped') AS word)
                    END,
                    CASE json_type(json_body, '$.pause')
                        WHEN 'text' THEN json_extract(json_body, '$.pause')
                        WHEN 'object' THEN (SELECT word.key FROM json_each(json_body, '$.pause') AS word)
                    END,
                    CASE json_type(json_body, '$.abandoned') WHEN 'true' THEN 'abandoned' END) AS reason,
           json_extract(json_body, '$.outcome.status.failed.message') AS error_message,
           json_extract(json_body, '$.outcome.text') AS answer,
           coalesce(json_extract(json_body, '$.request'), json_extract(json_body, '$.step')) AS request,
           min(coalesce(CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END
                        + CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END,
                        CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END,
                        CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END),
               9223372036854775807) AS input_tokens,
           min(coalesce(CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END
                        + CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END,
                        CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END,
                        CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END),
               9223372036854775807) AS output_tokens,
           min(CASE json_type(json_body, '$.cost') WHEN 'integer' THEN json_extract(json_body, '$.cost') END, 9223372036854775807) AS cost_pico
    FROM events WHERE kind IN ('run_started', 'run_resumed', 'run_paused', 'run_finished', 'model_started', 'model_finished')
),
runs AS (
    SELECT session, run, min(agent) AS agent, min(seq) AS seq, max(prompt) AS prompt, max(status) AS status,
           max(CASE WHEN kind = 'run_finished' THEN reason END) AS ended, max(error_message) AS error_message,
           -- The newest pause's: numbers of one length sort as text.
           substr(max(CASE WHEN kind = 'run_paused' THEN printf('%019d', seq) || reason END), 20) AS pause,
           max(CASE WHEN kind = 'run_paused' THEN seq END) AS paused_seq,
           max(CASE WHEN kind IN ('run_started', 'run_resumed') THEN seq END) AS begun_seq,
           coalesce(max(resumed), 0) AS resumed, max(answer) AS answer,
           min(CASE WHEN kind = 'run_started' THEN at END) AS started_at,
           max(CASE WHEN kind = 'run_finished' THEN at END) AS finished_at,
           count(CASE WHEN kind = 'model_finished' THEN 1 END) AS steps,
           CASE WHEN sum(input_tokens / 1000000000) + sum(input_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(input_tokens / 1000000000) * 1000000000 + sum(input_tokens % 1000000000) END AS input_tokens,
           CASE WHEN sum(output_tokens / 1000000000) + sum(output_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(output_tokens / 1000000000) * 1000000000 + sum(output_tokens % 1000000000) END AS output_tokens,
           -- A call without an end costs what nobody knows.
           CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
                     AND count(DISTINCT CASE WHEN kind = 'model_started' THEN request END)
                         <= count(DISTINCT CASE WHEN kind = 'model_finished' THEN request END)
                THEN coalesce(CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END, 0) END AS cost_pico
    FROM marks GROUP BY session, run
),
-- Older versions began a run in the place of an open one without ending that.
placed AS (
    SELECT runs.*, lead(seq) OVER (PARTITION BY session ORDER BY seq) AS next_seq,
           lead(started_at) OVER (PARTITION BY session ORDER BY seq) AS next_at
    FROM runs
)
SELECT session, run, agent, seq, prompt,
       CASE WHEN status IS NOT NULL THEN status WHEN next_seq IS NOT NULL THEN 'cancelled'
            WHEN paused_seq > begun_seq THEN 'paused' ELSE 'running' END AS status,
       CASE WHEN status IS NOT NULL THEN ended WHEN next_seq IS NOT NULL THEN 'abandoned'
            WHEN paused_seq > begun_seq THEN pause END AS reason,
       error_message, answer, resumed, started_at, coalesce(finished_at, next_at) AS finished_at,
       coalesce(finished_at, next_at) - started_at AS micros, steps, input_tokens, output_tokens, cost_pico
FROM placed;
CREATE VIEW tasks AS
SELECT runs.session, sessions.parent, sessions.role, runs.run, runs.agent, runs.prompt, runs.status, runs.reason,
       runs.error_message, runs.answer, runs.resumed, runs.started_at, runs.finished_at, runs.micros, runs.steps,
       runs.input_tokens, runs.output_tokens, runs.cost_pico
FROM agent_executions AS runs JOIN sessions ON sessions.id = runs.session
WHERE sessions.parent IS NOT NULL;
CREATE VIEW agents AS
WITH facts AS (
    SELECT agent, session, kind, at, json_extract(json_body, '$.agent') AS name,
           coalesce(json_extract(json_body, '$.request'), run || '.' || json_extract(json_body, '$.step')) AS request,
           min(coalesce(CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END
                        + CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END,
                        CASE json_type(json_body, '$.usage.input') WHEN 'integer' THEN json_extract(json_body, '$.usage.input') END,
                        CASE json_type(json_body, '$.wasted.input') WHEN 'integer' THEN json_extract(json_body, '$.wasted.input') END),
               9223372036854775807) AS input_tokens,
           min(coalesce(CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END
                        + CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END,
                        CASE json_type(json_body, '$.usage.output') WHEN 'integer' THEN json_extract(json_body, '$.usage.output') END,
                        CASE json_type(json_body, '$.wasted.output') WHEN 'integer' THEN json_extract(json_body, '$.wasted.output') END),
               9223372036854775807) AS output_tokens,
           min(CASE json_type(json_body, '$.cost') WHEN 'integer' THEN json_extract(json_body, '$.cost') END, 9223372036854775807) AS cost_pico
    FROM events WHERE kind IN ('run_started', 'model_started', 'model_finished')
)
SELECT agent, max(name) AS name, count(DISTINCT session) AS sessions,
       count(CASE WHEN kind = 'run_started' THEN 1 END) AS runs,
       count(CASE WHEN kind = 'model_finished' THEN 1 END) AS model_calls,
       CASE WHEN sum(input_tokens / 1000000000) + sum(input_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(input_tokens / 1000000000) * 1000000000 + sum(input_tokens % 1000000000) END AS input_tokens,
           CASE WHEN sum(output_tokens / 1000000000) + sum(output_tokens % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(output_tokens / 1000000000) * 1000000000 + sum(output_tokens % 1000000000) END AS output_tokens,
       CASE WHEN count(CASE WHEN kind = 'model_finished' THEN 1 END) = count(cost_pico)
                 AND count(DISTINCT CASE WHEN kind = 'model_started' THEN request END)
                     <= count(DISTINCT CASE WHEN kind = 'model_finished' THEN request END)
            THEN coalesce(CASE WHEN sum(cost_pico / 1000000000) + sum(cost_pico % 1000000000) / 1000000000 >= 9223372036
                THEN 9223372036854775807
                ELSE sum(cost_pico / 1000000000) * 1000000000 + sum(cost_pico % 1000000000) END, 0) END AS cost_pico,
       min(at) AS first_at, max(at) AS last_at
FROM facts GROUP BY agent;
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
