"""The matrix: which Spark and Java run what, tried out, and written into the page docs/start/spark.md."""
