"""The commands of ``mlrl`` that belong to no single package. Each imports what it needs when it is called."""
