from relayweb.cli import main

main()
