"""Names of SeaTunnel that Tidegate does not support: connectors, and options of connectors.

blocks.py uses them, after the registry, to distinguish an unsupported name from a misspelt one.
"""

_NAMES = """
ActiveMQ Aerospike Airtable AmazonDynamodb AmazonSqs BigQuery Cassandra Clickhouse ClickhouseFile
Cloudberry CosFile DataHub Databend DB2-CDC DingTalk Doris Druid DuckDB Easysearch Elasticsearch
EmailSink Feishu Fluss FtpFile GcsFile Github Gitlab GoogleBigtable GoogleFirestore GoogleSheets
GraphQL Hbase HdfsFile Hive Http Hudi HugeGraph Iceberg InfluxDB InMemory IoTDB IoTDBv2 Jdbc Jira
Kafka Klaviyo Kudu Lance Lemlist MariaDB-CDC Maxcompute Milvus MongoDB MongoDB-CDC Mqtt MyHours
MySQL-CDC Neo4j Notion ObsFile OceanBase-CDC OneSignal Opengauss-CDC OpenMldb Oracle-CDC OssFile
OssJindoFile Paimon Persistiq Postgres-CDC Prometheus Pulsar Qdrant RabbitMQ Redis Rocketmq S3File
S3Redshift SelectDBCloud SensorsData Sentry SftpFile Slack Sls SmbFile Socket SqlServer-CDC
StarRocks Tablestore TDengine TiDB-CDC Typesense Web3j WeChat
"""

SEATUNNEL_CONNECTORS = {name.lower(): name for name in _NAMES.split()}
"""Lower case -> the spelling of SeaTunnel."""

_OPTIONS = """
base-url comment compatibleMode decimal_type_narrowing hostname kerberos_keytab_path
kerberos_principal krb5_path multi_table_sink_replica port schema schema-name server-id
startup.specific-offset.file startup.specific-offset.pos startup.timestamp
stop.specific-offset.file stop.specific-offset.pos stop.timestamp table_list table_path
tables_configs tablePrefix tableSuffix use_kerberos
"""

SEATUNNEL_OPTIONS = frozenset(_OPTIONS.split())
"""Options of SeaTunnel's connectors that have no effect here: warnings, not unknown options."""
