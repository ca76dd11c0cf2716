"""The attentions of the Synthesizer, whose logits are no products of queries and keys; one file each."""
