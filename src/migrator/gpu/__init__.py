"""Acting on a GPU: drivers that divide it, the smallest change, a journal that survives crashes."""
