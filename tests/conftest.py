def pytest_addoption(parser):
    parser.addoption("--bless", action="store_true", help="write what is found as what is expected")
