"""Large downloads: files that workers make, and the pages where they are fetched."""
