"""Names of the reference's connectors, so that one that is not here is told apart from one that is misspelt. Asked by blocks.py, only after the registry."""

_NAMES = """
ActiveMQ Aerospike Airtable AmazonDynamodb AmazonSqs BigQuery Cassandra Clickhouse ClickhouseFile Cloudberry CosFile DataHub Databend DB2-CDC DingTalk Doris
Druid DuckDB Easysearch Elasticsearch EmailSink Feishu Fluss FtpFile GcsFile Github Gitlab GoogleBigtable GoogleFirestore GoogleSheets GraphQL Hbase HdfsFile
Hive Http Hudi HugeGraph Iceberg InfluxDB InMemory IoTDB IoTDBv2 Jdbc Jira Kafka Klaviyo Kudu Lance Lemlist MariaDB-CDC Maxcompute Milvus MongoDB MongoDB-CDC
Mqtt MyHours MySQL-CDC Neo4j Notion ObsFile OceanBase-CDC OneSignal Opengauss-CDC OpenMldb Oracle-CDC OssFile OssJindoFile Paimon Persistiq Postgres-CDC
Prometheus Pulsar Qdrant RabbitMQ Redis Rocketmq S3File S3Redshift SelectDBCloud SensorsData Sentry SftpFile Slack Sls SmbFile Socket SqlServer-CDC StarRocks
Tablestore TDengine TiDB-CDC Typesense Web3j WeChat
"""

REFERENCE_NAMES = {name.lower(): name for name in _NAMES.split()}
"""Lower case -> as the reference writes it."""
