#!/bin/sh
# Is there a Java that Spark starts with? Silent and 0 when there is; else says how to get it, and 1.
# Spark itself takes $JAVA_HOME/bin/java where JAVA_HOME is set, and the java of PATH elsewhere: look at the same one.

if [ -n "${JAVA_HOME:-}" ]; then
    java=$JAVA_HOME/bin/java
    where="JAVA_HOME ($JAVA_HOME)"
else
    java=java
    where="PATH"
fi

# `"17.0.15"` and `"21"` alike; old ones say `"1.8.0"`, which gives 1.
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9][0-9]*\).*/\1/p' | head -n 1)

case $version in
    17 | 21) exit 0 ;;
    "") echo "java: none found by $where; Spark needs Java 17 or 21." ;;
    *) echo "java: found version $version by $where; Spark needs Java 17 or 21." ;;
esac >&2

cat >&2 <<'HOW'
  Debian, Ubuntu   apt-get install openjdk-17-jre-headless
  Fedora           dnf install java-21-openjdk-headless
  macOS            brew install openjdk@17, then  export JAVA_HOME="$(brew --prefix openjdk@17)/libexec/openjdk.jdk/Contents/Home"
With several on one machine, let JAVA_HOME name the one to use.
HOW
exit 1
