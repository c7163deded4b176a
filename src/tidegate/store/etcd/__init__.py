"""The store on etcd."""
