"""MobileBERT: what is particular to it, how it is made from a BERT, and its norms in graphs."""
