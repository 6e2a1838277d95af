"""Alembic's environment: runs the migrations on the connection of kcard.hub.db.session."""

from alembic import context

from kcard.hub.db.models import metadata

if __name__ == "env_py":  # Alembic's name for this file; a plain import does nothing
    # The whole upgrade runs in the caller's transaction.
    connection = context.config.attributes["connection"]
    context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()
