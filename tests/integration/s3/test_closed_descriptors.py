"""A training that closes all files, and so the connections to S3, whose numbers its own files then have."""

import pytest

from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.store import Store
from tests.unit.library.processes import Script

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.mark.nightly
def test_a_connection_that_the_program_closed_reaches_none_of_its_files(
    s3: FaultyServer, store: Store, script: Script
) -> None:
    s3.keeps_alive = True
    done = script.run(
        """
        import os, socket, tempfile, time, trainwarden
        os.chdir(tempfile.mkdtemp())
        with trainwarden.run("r", total_steps=60) as run:
            for step in range(1, 21):
                run.step(step)
                time.sleep(0.1)
            links = [os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")
                     if os.path.exists(f"/proc/self/fd/{number}")]
            assert any(link.startswith("socket:") for link in links), links
            os.closerange(3, 4096)
            pairs = [socket.socketpair() for _ in range(40)]
            files = [open(f"user-{number}", "w+b") for number in range(80)]
            for step in range(21, 61):
                run.step(step)
                time.sleep(0.1)
            for number, file in enumerate(files):
                os.fstat(file.fileno())
                file.write(b"mine")
                file.flush()
                assert os.path.getsize(f"user-{number}") == 4, number
            for one, other in pairs:
                one.setblocking(False)
                other.setblocking(False)
                for end in (one, other):
                    try:
                        raise AssertionError(end.recv(100))
                    except BlockingIOError:
                        pass
                one.sendall(b"x")
                assert other.recv(2) == b"x"
        print("intact")
        """,
        TRAINWARDEN_S3_URL=store.url,
    )
    assert "intact" in done.stdout, done.stdout + done.stderr[-3000:]
    assert store.document("progress.json")["step"] == 60
    assert store.document("metadata.json")["status"] == "succeeded"
    assert "_complete" in store.names()
