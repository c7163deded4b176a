-- The same job in SQL: tables are sources and sinks, INSERT ... SELECT connects them, and the env
-- block is in the comment.

/* config
env {
  job.name = "sql-job"
  job.mode = "BATCH"
}
*/

CREATE TABLE sales WITH (
  'connector' = 'LocalFile',
  'type' = 'source',
  'path' = '${data:examples/data}/sales',
  'file_format_type' = 'csv',
  'schema' = '{ fields { id = bigint, region = string, day = date, amount = double } }'
);

CREATE TABLE large_sales WITH (
  'connector' = 'LocalFile',
  'type' = 'sink',
  'path' = '${out:/tmp/tidegate-examples}/sql-job',
  'file_format_type' = 'json',
  'data_save_mode' = 'DROP_DATA'
);

INSERT INTO large_sales SELECT id, region, amount FROM sales WHERE amount > 90;
