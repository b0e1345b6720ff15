#!/bin/sh
# What a container of the image does: `run ROLE [more arguments]`.
#
# Roles: api-server, scheduler, triggerer, dag-processor, worker (Airflow); spark-master, spark-worker,
# spark-connect; store; setup, samples. Anything else is run as a command.
set -eu

role=${1:?name a role or a command}
shift
bin=$(cd "$(dirname "$0")" && pwd)

# What the image's HEALTHCHECK asks for, where no other one is given.
echo "$role" >"${TMPDIR:-/tmp}/delta-cdc-role"

spark_home() {
    python -c 'from delta_cdc.launch.environment import spark_home; print(spark_home())'
}

# Every JAR once, in the form of a class path. Each node of the cluster has them at the same place.
class_path() {
    delta-cdc jars --s3 | paste -s -d : -
}

# Delta's own log stores are safe for one driver only. Without the JAR of ours, this names none.
log_stores() {
    python -c 'from delta_cdc.launch.log_store import log_store_confs
print(*(f"--conf={name}={store}" for name, store in log_store_confs({}).items()))'
}

case $role in
    api-server | scheduler | triggerer | dag-processor)
        exec airflow "$role" "$@"
        ;;
    worker)
        exec airflow celery worker "$@"
        ;;
    spark-master)
        SPARK_HOME=$(spark_home)
        export SPARK_HOME
        exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.master.Master \
            --host "${SPARK_MASTER_HOST:-$(hostname)}" --port 7077 --webui-port 8080 "$@"
        ;;
    spark-worker)
        SPARK_HOME=$(spark_home)
        export SPARK_HOME
        exec "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker \
            --webui-port 8081 --work-dir "${SPARK_WORKER_DIR:-/tmp/spark-work}" "$@"
        ;;
    spark-connect)
        SPARK_HOME=$(spark_home)
        jars=$(class_path)
        export SPARK_HOME
        export PYSPARK_PYTHON="${PYSPARK_PYTHON:-$(command -v python)}"
        # Each conf is an argument of its own.
        set -- $(log_stores) "$@"
        exec "$SPARK_HOME/bin/spark-submit" --class org.apache.spark.sql.connect.service.SparkConnectServer \
            --name delta-cdc-connect \
            --conf "spark.driver.extraClassPath=$jars" --conf "spark.executor.extraClassPath=$jars" \
            --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
            --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
            --conf spark.sql.session.timeZone=UTC \
            --conf spark.connect.session.manager.defaultSessionTimeout=10m \
            "$@" spark-internal
        ;;
    store)
        # A folder of the store is a bucket.
        mkdir -p "${STORE_FOLDER:=/opt/delta-cdc/store}/${STORE_BUCKET:-lake}"
        exec versitygw --port "0.0.0.0:${STORE_PORT:-7070}" --health /health "$@" \
            posix "$STORE_FOLDER"
        ;;
    setup | samples)
        exec python "$bin/setup.py" "$role" "$@"
        ;;
    *)
        exec "$role" "$@"
        ;;
esac
