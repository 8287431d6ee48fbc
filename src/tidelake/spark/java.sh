#!/bin/sh
# Checks that there is a Java that Spark supports. If so, prints nothing and exits with 0; if not, says how to get one
# and exits with 1. Like Spark, uses $JAVA_HOME/bin/java if JAVA_HOME is set, and otherwise the java on PATH.

if [ -n "${JAVA_HOME:-}" ]; then
    java=$JAVA_HOME/bin/java
    where="JAVA_HOME ($JAVA_HOME)"
else
    java=java
    where="PATH"
fi

# Matches both `"17.0.15"` and `"21"`; old versions are written as `"1.8.0"`, which gives 1.
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9][0-9]*\).*/\1/p' | head -n 1)

case $version in
    17 | 21) exit 0 ;;
    "") echo "java: none found via $where; Spark needs Java 17 or 21." ;;
    *) echo "java: found version $version via $where; Spark needs Java 17 or 21." ;;
esac >&2

cat >&2 <<'HOW'
  Debian, Ubuntu   apt-get install openjdk-17-jre-headless
  Fedora           dnf install java-21-openjdk-headless
  macOS            brew install openjdk@17, then  export JAVA_HOME="$(brew --prefix openjdk@17)/libexec/openjdk.jdk/Contents/Home"
If several are installed, set JAVA_HOME to the one to use.
HOW
exit 1
