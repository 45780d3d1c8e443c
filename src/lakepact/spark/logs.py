"""Where the log of Spark goes when a command runs it: into a file, since a failing task logs hundreds of lines."""

from __future__ import annotations

import logging
import re
import tempfile
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
_SETTINGS: Final = """\
rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c: %m%n%ex
"""
_log = logging.getLogger(__name__)


def log_file(run_id: str) -> Path:
    """The log file of a run, in a folder of its own below the system's temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="lakepact-run-"))
    return folder / f"{_NOT_IN_A_NAME.sub('-', run_id)}.log"


def log_to(spark: SparkSession, file: Path) -> None:
    """Let the driver's JVM log errors into this file instead of standard error. Never raises."""
    settings = file.with_suffix(".log4j2.properties")
    settings.write_text(_SETTINGS.format(file=file.as_posix()))
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure(jvm.java.net.URI(settings.as_uri()))
    except Exception as error:
        _log.info("Spark logs to standard error: %s", error)
