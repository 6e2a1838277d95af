"""Alembic's environment: runs the migrations on the connection that kcard.hub.records.database hands over."""

from alembic import context

from kcard.hub.records.tables import metadata

__all__: list[str] = []


def _run() -> None:
    # The caller's transaction holds the whole upgrade, tables included, so it happens once or not at all.
    connection = context.config.attributes["connection"]
    context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()


if __name__ == "env_py":  # the name under which Alembic loads this file; a plain import does nothing
    _run()
