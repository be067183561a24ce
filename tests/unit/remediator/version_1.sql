-- Written by the remediator whose schema was version 1: one restart that has helped, one whose release got no answer.
BEGIN TRANSACTION;
CREATE TABLE about (
	"key" TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY ("key")
);
INSERT INTO "about" VALUES('schema','1');
CREATE TABLE alerts (
	"key" TEXT NOT NULL,
	labels TEXT NOT NULL,
	starts_at FLOAT,
	source TEXT NOT NULL,
	received FLOAT NOT NULL,
	last_seen FLOAT NOT NULL,
	pending BOOLEAN NOT NULL,
	dropped BOOLEAN NOT NULL,
	waits_for TEXT,
	incident_id TEXT,
	PRIMARY KEY ("key")
);
INSERT INTO "alerts" VALUES('4ab3213b757021b15ba54ee65d5d24659fcd1014b1af91b142ca4ae51b4112d5','{"alertname": "TrainRunStalled", "run_id": "run-1", "job_id": "17", "attempt": "0", "scheduler": "sim", "failure_mode": "stall", "remediate": "true"}',1800000001.0,'poll',1800000001.0,1800000004.0,0,0,NULL,'e14f7e2252d9441593ea7e9db5e45aaf');
INSERT INTO "alerts" VALUES('ad04e41347a4cbb27d92b1d5cc512f4ebb96244d3a876fb59a8f5b0e3459c06c','{"alertname": "TrainRunFailed", "run_id": "run-1", "job_id": "17", "attempt": "1", "scheduler": "sim", "failure_mode": "crash", "remediate": "true"}',1800000008.0,'poll',1800000008.0,1800000011.0,0,0,NULL,'ecc11e113dbf43cd82d932bb0f110a7e');
CREATE TABLE deliveries (
	sha256 TEXT NOT NULL,
	first_received FLOAT NOT NULL,
	last_received FLOAT NOT NULL,
	count INTEGER NOT NULL,
	truncated INTEGER NOT NULL,
	PRIMARY KEY (sha256)
);
CREATE TABLE events (
	number INTEGER NOT NULL,
	incident_id TEXT NOT NULL,
	time FLOAT NOT NULL,
	state TEXT NOT NULL,
	detail TEXT NOT NULL,
	PRIMARY KEY (number),
	FOREIGN KEY(incident_id) REFERENCES incidents (id)
);
INSERT INTO "events" VALUES(1,'e14f7e2252d9441593ea7e9db5e45aaf',1800000001.0,'RECEIVED','TrainRunStalled by poll');
INSERT INTO "events" VALUES(2,'e14f7e2252d9441593ea7e9db5e45aaf',1800000001.0,'PROPOSED','restart: policy default restarts after every stall');
INSERT INTO "events" VALUES(3,'e14f7e2252d9441593ea7e9db5e45aaf',1800000001.0,'PREPARING','nothing speaks against it');
INSERT INTO "events" VALUES(4,'e14f7e2252d9441593ea7e9db5e45aaf',1800000001.0,'PREPARING','call 1');
INSERT INTO "events" VALUES(5,'e14f7e2252d9441593ea7e9db5e45aaf',1800000001.0,'PREPARING','ok');
INSERT INTO "events" VALUES(6,'e14f7e2252d9441593ea7e9db5e45aaf',1800000004.0,'PREPARED','the scheduler can give the next start');
INSERT INTO "events" VALUES(7,'e14f7e2252d9441593ea7e9db5e45aaf',1800000004.0,'COMMITTED','the next start may be given');
INSERT INTO "events" VALUES(8,'e14f7e2252d9441593ea7e9db5e45aaf',1800000004.0,'VERIFYING','ok');
INSERT INTO "events" VALUES(9,'e14f7e2252d9441593ea7e9db5e45aaf',1800000004.0,'DONE','attempt 1 runs at step 41, past 40');
INSERT INTO "events" VALUES(10,'ecc11e113dbf43cd82d932bb0f110a7e',1800000008.0,'RECEIVED','TrainRunFailed by poll');
INSERT INTO "events" VALUES(11,'ecc11e113dbf43cd82d932bb0f110a7e',1800000008.0,'PROPOSED','restart: policy default restarts after every crash');
INSERT INTO "events" VALUES(12,'ecc11e113dbf43cd82d932bb0f110a7e',1800000008.0,'PREPARING','nothing speaks against it');
INSERT INTO "events" VALUES(13,'ecc11e113dbf43cd82d932bb0f110a7e',1800000008.0,'PREPARING','call 1');
INSERT INTO "events" VALUES(14,'ecc11e113dbf43cd82d932bb0f110a7e',1800000008.0,'PREPARING','ok');
INSERT INTO "events" VALUES(15,'ecc11e113dbf43cd82d932bb0f110a7e',1800000011.0,'PREPARED','the scheduler can give the next start');
INSERT INTO "events" VALUES(16,'ecc11e113dbf43cd82d932bb0f110a7e',1800000011.0,'COMMITTED','the next start may be given');
INSERT INTO "events" VALUES(17,'ecc11e113dbf43cd82d932bb0f110a7e',1800000011.0,'COMMITTED','no answer');
CREATE TABLE incidents (
	number INTEGER NOT NULL,
	id TEXT NOT NULL,
	run_id TEXT NOT NULL,
	attempt BIGINT,
	attempt_key TEXT,
	job_id TEXT,
	scheduler TEXT,
	alert TEXT NOT NULL,
	failure_mode TEXT NOT NULL,
	error_type TEXT,
	state TEXT NOT NULL,
	action TEXT NOT NULL,
	reason TEXT NOT NULL,
	policy TEXT NOT NULL,
	budget_used INTEGER,
	budget_limit INTEGER,
	step_before FLOAT,
	created FLOAT NOT NULL,
	updated FLOAT NOT NULL,
	not_before FLOAT NOT NULL,
	calls INTEGER NOT NULL,
	committed FLOAT,
	deadline FLOAT,
	paging BOOLEAN NOT NULL,
	PRIMARY KEY (number),
	UNIQUE (id)
);
INSERT INTO "incidents" VALUES(1,'e14f7e2252d9441593ea7e9db5e45aaf','run-1',0,'sim:17:0','17','sim','TrainRunStalled','stall',NULL,'DONE','restart','policy default restarts after every stall','default',0,3,40.0,1800000001.0,1800000004.0,1800000001.0,1,1800000004.0,NULL,0);
INSERT INTO "incidents" VALUES(2,'ecc11e113dbf43cd82d932bb0f110a7e','run-1',1,'sim:17:1','17','sim','TrainRunFailed','crash',NULL,'COMMITTED','restart','policy default restarts after every crash','default',0,2,41.0,1800000008.0,1800000011.0,1800000008.0,1,1800000011.0,NULL,0);
CREATE INDEX alerts_pending ON alerts (pending);
CREATE INDEX incidents_by_run ON incidents (run_id);
CREATE UNIQUE INDEX one_restart_per_attempt ON incidents (run_id, attempt_key) WHERE action = 'restart';
CREATE INDEX incidents_by_state ON incidents (state);
CREATE INDEX events_by_incident ON events (incident_id);
COMMIT;
