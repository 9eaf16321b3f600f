"""Which programs with which sub-commands run tests."""

import shlex

from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.audit.commands import runs_tests

RUN_TESTS = """
pytest -q
py.test
python -m pytest
python3.12 -um pytest x
python -W error -m unittest discover
python -m coverage run -m pytest
python -m django test
python manage.py test
python runtests.py
.venv/bin/python .venv/bin/pytest
./manage.py test app
./run pytest -q
./run_tests.sh
bash scripts/test.sh
tox -e py312
nox -s tests
jest@29 --ci
vitest run
mocha
node --test
node --experimental-vm-modules node_modules/jest/bin/jest.js
npm test
npm t
npm run test:unit
npm --prefix web run test -- --watch=false
yarn test
yarn jest
yarn workspace web test
pnpm -r test
pnpm --filter web test
pnpm vitest run
bun test
bun run test
deno test
deno task test
turbo run test
nx run app:test
nx run-many --target=test
nx run app:test:ci
pdm run coverage run -m pytest
pixi run test
npm run web:test
php -d memory_limit=-1 vendor/bin/phpunit
playwright test
cypress run
cargo test --all
cargo +nightly test
cargo nextest run
go test ./...
swift test
zig build test
make test
make check
make -C sub -j4 lint test-unit
just test
mvn -q -Dtest=Foo test
./mvnw verify
./gradlew :app:testDebugUnitTest
gradlew.bat integrationTest
sbt 'core/testOnly foo.Bar'
dotnet test
ctest --output-on-failure
rspec spec/x
bin/rails test:system
rake spec
mix test
vendor/bin/phpunit
php artisan test
composer run test
mise run test:ci
hatch run test
bazel test //...
xcodebuild test -scheme App
"""
RUN_NONE = """
pytest --version
pytest --collect-only -q
jest --showConfig
python -m pip install pytest
python -c 'import pytest'
python script.py pytest
python test_data.py
bash -n scripts/test.sh
./deploy.sh test
./setup.sh test
npm run test:types
npm run build:test
rake db:test:prepare
./build.sh
/usr/bin/which pytest
pip install pytest
npm install jest
npm ci
npm run lint
npm run typecheck
npm view jest version
npm
yarn add jest
pnpm add vitest
bun install vitest
cargo check
cargo build --tests
cargo nextest list
cargo test --no-run
go vet ./...
make build
make checkout
make -f test.mk build
mvn package
mvn -pl test package
./gradlew assembleAndroidTest
./gradlew compileTestJava
./gradlew build -x test
docker build -t test .
test -f pytest
git checkout test
gh workflow run test
echo pytest
node -e test
"""


@every_case("line", RUN_TESTS.strip().splitlines())
def test_a_test_runner_is_known_by_its_program_and_its_sub_command(line: str) -> None:
    assert runs_tests(tuple(shlex.split(line)))


@every_case("line", RUN_NONE.strip().splitlines())
def test_another_program_or_another_sub_command_runs_no_tests(line: str) -> None:
    assert not runs_tests(tuple(shlex.split(line)))


@given(st.lists(st.sampled_from(["python", "-m", "node", "yarn", "run", "bash", "--", "./x", "nx", "test", "make", ""]), min_size=1))
def test_programs_in_any_order_come_to_an_end(words: list[str]) -> None:
    assert runs_tests(tuple(words)) in (True, False)
