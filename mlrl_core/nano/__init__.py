"""The nano policy: a language model of a few million parameters that is built here and needs no download.

It is a wind tunnel for the method, small enough to watch: a grammar writes demonstrations from the public data of
a competition (``grammar``), a tokenizer and a Llama are built from them (``model``), supervised fine-tuning gives
version 0 (``warmstart``). Everything after that is what a real model goes through.
"""
