//! Sources: where records are read.
