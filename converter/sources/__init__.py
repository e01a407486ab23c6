"""Where the images lie: one module per kind of input, none of which knows labels or shards."""
