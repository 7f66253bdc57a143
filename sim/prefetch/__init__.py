"""Who is fetched ahead: one prefetcher a file, one line in the registry."""
