"""Opens the SQLite file: durable commits, one writer, an integrity check; read-only beside the writer."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError

from trainwarden_remediator.database import schema
from trainwarden_remediator.errors import StoreError

FILE = "remediator.sqlite3"
_BUSY_SECONDS = 5
# The execution option of an engine that holds its DatabaseFile.
_FILE_OPTION = "trainwarden_file"
_DELETE_ABOUT = schema.about.delete().where(schema.about.c.key == sa.bindparam("of"))


class Lock:
    """A lock for the life of the process: one remediator per state folder."""

    def __init__(self, state_dir: Path) -> None:
        """Take the lock; raise StoreError if another process holds it, or the folder cannot be written."""
        path = state_dir / "lock"
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise StoreError(f"{state_dir}: another remediator uses this folder") from None

    def release(self) -> None:
        """Release the lock."""
        os.close(self._fd)


class DatabaseUnusable(SQLAlchemyError):
    """The file was deleted, replaced or damaged: nothing is read or stored any more until a person has acted."""


class DatabaseFile:
    """The file of an open database, which somebody may delete, replace or damage; one in memory is never another."""

    def __init__(self, engine: sa.Engine) -> None:
        self._path = Path(engine.url.database) if engine.url.database else None
        self._identity = self._identify()
        self._damage = ""

    def check(self) -> None:
        """Raise DatabaseUnusable if the file was deleted or replaced, or damage was found in it.

        What is committed to another file would be lost. Where one page is damaged, others may still be read, and lack
        what the damaged one said.
        """
        if self._identify() != self._identity:
            raise DatabaseUnusable(f"{self._path}: the database was deleted or replaced; start the remediator again")
        if self._damage:
            raise DatabaseUnusable(
                f"{self._path}: damaged: {self._damage}. Nothing is done or accepted any more: put a backup back, and "
                "start the remediator again"
            )

    def note_damage(self, found: str) -> None:
        """Let `check` fail from now on."""
        self._damage = found

    def _identify(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat() if self._path else None
        except OSError:
            return None
        return (status.st_dev, status.st_ino) if status else None


def open_database(state_dir: Path) -> sa.Engine:
    """Open for writing, creating what is missing; raise StoreError."""
    path = state_dir / FILE
    engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": _BUSY_SECONDS}, pool_timeout=_BUSY_SECONDS)
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    with _closed_on_error(engine, path), engine.begin() as connection:
        healthy = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
        if healthy != "ok":
            raise StoreError(f"{path}: damaged: {healthy}")
        _check_version(connection, path, newest_only=False)
        _migrate(connection)
    engine.update_execution_options(**{_FILE_OPTION: DatabaseFile(engine)})
    event.listen(engine, "handle_error", _on_error)
    return engine


def file_of(engine: sa.Engine) -> DatabaseFile:
    """Return the file of an engine that `open_database` has returned."""
    found: DatabaseFile = engine.get_execution_options()[_FILE_OPTION]
    return found


def _on_error(context: sa.ExceptionContext) -> None:
    """Raise DatabaseUnusable instead of what SQLite raises where it finds damage."""
    error = context.original_exception
    # SQLITE_CORRUPT and SQLITE_NOTADB; a full disk, a lock and a failing read are of subclasses.
    if type(error) is sqlite3.DatabaseError and context.engine is not None:
        file = file_of(context.engine)
        file.note_damage(str(error))
        file.check()


def open_read_only(state_dir: Path) -> sa.Engine:
    """Open for reading beside a running remediator; raise StoreError where there is no database."""
    path = state_dir / FILE
    try:
        is_there = path.is_file()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; expected the remediator's user, or root") from None
    if not is_there:
        raise StoreError(f"{path}: there is no decision log here; expected the --state-dir of a remediator")
    engine = sa.create_engine(
        f"sqlite:///file:{quote(str(path))}?mode=ro&uri=true", connect_args={"timeout": _BUSY_SECONDS}
    )
    with _closed_on_error(engine, path), engine.connect() as connection:
        _check_version(connection, path)
    return engine


@contextmanager
def _closed_on_error(engine: sa.Engine, path: Path) -> Iterator[None]:
    """Close the engine where the database cannot be used, and raise StoreError."""
    try:
        yield
    except SQLAlchemyError as error:
        engine.dispose()
        raise StoreError(f"{path}: {getattr(error, 'orig', error)}") from None
    except StoreError:
        engine.dispose()
        raise


def _on_connect(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # _on_begin issues BEGIN itself
    try:
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        connection.execute("PRAGMA synchronous=FULL")
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
        connection.execute("PRAGMA foreign_keys=ON")
    except Exception:
        connection.close()  # the pool has not taken it over yet
        raise
    if mode != "wal" or synchronous != 2:
        connection.close()
        raise StoreError(
            f"SQLite gives journal_mode={mode}, synchronous={synchronous}; wal and 2 are needed for durable commits"
        )


def reading(engine: sa.Engine) -> sa.Engine:
    """Return the same database for transactions that only read: they wait for no writer, and none waits for them."""
    return engine.execution_options(trainwarden_reads=True)


def _on_begin(connection: sa.Connection) -> None:
    only_reads = connection.get_execution_options().get("trainwarden_reads", False)
    connection.exec_driver_sql("BEGIN" if only_reads else "BEGIN IMMEDIATE")


def set_about(connection: sa.Connection, key: str, value: str) -> None:
    """Note something about the database itself, in place of what was noted under this key."""
    connection.execute(_DELETE_ABOUT, {"of": key})
    connection.execute(schema.about.insert(), {"key": key, "value": value})


def _migrate(connection: sa.Connection) -> None:
    """Bring the tables of older versions up to date, all or none: SQLite changes tables in transactions, too."""
    version = _version(connection)
    columns = _columns(connection)
    for table in schema.metadata.sorted_tables:
        if table.name in columns:
            _add_columns(connection, table, columns[table.name])
    for number in range(int(version) if version else schema.VERSION, schema.VERSION):
        for statement in schema.MIGRATIONS[number]:
            connection.exec_driver_sql(statement)
    new = [table for table in schema.metadata.sorted_tables if table.name not in columns]
    schema.metadata.create_all(connection, new, checkfirst=False)
    indexes = set(connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'index'").scalars())
    for table in schema.metadata.sorted_tables:
        for index in table.indexes:
            if index.name not in indexes:
                index.create(connection)
    set_about(connection, "schema", str(schema.VERSION))


def _columns(connection: sa.Connection) -> dict[str, set[str]]:
    """Return the columns of each table, by one query: SQLAlchemy asks for each table by several."""
    query = (
        "SELECT of_table.name, of_column.name FROM sqlite_master AS of_table "
        "JOIN pragma_table_info(of_table.name) AS of_column WHERE of_table.type = 'table'"
    )
    found: dict[str, set[str]] = {}
    for table, column in connection.exec_driver_sql(query):
        found.setdefault(table, set()).add(column)
    return found


def _add_columns(connection: sa.Connection, table: sa.Table, present: Collection[str]) -> None:
    """Add the columns that an older version of a table lacks."""
    for column in table.columns:
        if column.name not in present:
            definition = sa.schema.CreateColumn(column).compile(connection)
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {definition}")


def _version(connection: sa.Connection) -> str | None:
    """Return the version of a database; None of an empty one."""
    if not sa.inspect(connection).has_table(schema.about.name):
        return None
    query = sa.select(schema.about.c.value).where(schema.about.c.key == "schema")
    return connection.execute(query).scalar_one_or_none()


def _check_version(connection: sa.Connection, path: Path, *, newest_only: bool = True) -> None:
    version = _version(connection)
    if version is None and not newest_only:
        return
    if version is not None and version.isascii() and version.isdigit() and int(version) > schema.VERSION:
        raise StoreError(
            f"{path}: has schema version {version}, of a newer remediator; this one reads up to {schema.VERSION}. "
            "Use the newer one, or another --state-dir"
        )
    older = {str(number) for number in range(1, schema.VERSION)}
    if newest_only and version in older:
        raise StoreError(
            f"{path}: has schema version {version}, of an older remediator; this one reads {schema.VERSION}. "
            "Starting the remediator of this version brings it up to date"
        )
    if version is None:
        raise StoreError(
            f"{path}: no database of a remediator, or an empty one; expected the --state-dir of a remediator"
        )
    readable = {str(schema.VERSION)} if newest_only else {*older, str(schema.VERSION)}
    if version not in readable:
        raise StoreError(f"{path}: has schema version {version}; this remediator reads {schema.VERSION}")
