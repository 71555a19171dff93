#!/usr/bin/env python
from relayweb.cli import main

if __name__ == "__main__":
    main()
