"""The cluster side of Gramary. So far it holds the command line (`gramary.cluster.cli`) and what it measures with."""
