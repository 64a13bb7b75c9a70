// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;

/// Counts what a plugin author has to read: the public types of the contracts, and their methods.
///
/// A method is counted where it is declared. Not counted are what a record makes by itself
/// (accessors of its components), `equals`, `hashCode`, `toString`, `values` and `valueOf` of
/// enums, constructors, and methods that override one of another type, which are read there.
///
/// Runs by itself, so that two versions can be compared: `java ContractSize.java CLASSES`, where
/// CLASSES is a folder of compiled contracts (with jspecify.jar on the class path).
///
/// @param types top-level public types
/// @param methods by package, each as `Type.method(parameters)`
public record ContractSize(List<String> types, TreeMap<String, List<String>> methods) {
    private static final Set<String> EVERY_OBJECT = Set.of("equals", "hashCode", "toString");
    private static final Set<String> EVERY_ENUM = Set.of("values", "valueOf");

    /// Prints the counts by package, then each method.
    public static void main(String[] arguments) throws IOException {
        var size = of(Path.of(arguments[0]));
        size.methods.forEach((where, all) -> {
            System.out.println(where + ": " + all.size());
            all.forEach(method -> System.out.println("  " + method));
        });
        System.out.println(size.types.size() + " types, " + size.methodCount() + " methods");
    }

    static ContractSize of(Path classes) throws IOException {
        var types = new ArrayList<String>();
        var methods = new TreeMap<String, List<String>>();
        try (var loader =
                        new URLClassLoader(
                                new java.net.URL[] {classes.toUri().toURL()},
                                ContractSize.class.getClassLoader());
                var files = Files.walk(classes)) {
            for (var file : files.filter(f -> f.toString().endsWith(".class")).sorted().toList()) {
                var path = classes.relativize(file).toString();
                var name = path.substring(0, path.length() - 6).replace('/', '.');
                if (name.endsWith("package-info")) {
                    continue;
                }
                var type = Class.forName(name, false, loader);
                if (!isVisible(type)) {
                    continue;
                }
                if (type.getEnclosingClass() == null) {
                    types.add(name);
                }
                var counted =
                        methods.computeIfAbsent(type.getPackageName(), _ -> new ArrayList<>());
                for (var method : type.getDeclaredMethods()) {
                    if (isCounted(type, method)) {
                        counted.add(line(type, method));
                    }
                }
            }
        } catch (ClassNotFoundException e) {
            throw new UncheckedIOException(new IOException(e));
        }
        methods.values().forEach(all -> all.sort(null));
        return new ContractSize(types, methods);
    }

    int methodCount() {
        return methods.values().stream().mapToInt(List::size).sum();
    }

    private static boolean isVisible(Class<?> type) {
        for (Class<?> at = type; at != null; at = at.getEnclosingClass()) {
            if (!Modifier.isPublic(at.getModifiers())
                    || at.isAnonymousClass()
                    || at.isLocalClass()) {
                return false;
            }
        }
        return true;
    }

    private static boolean isCounted(Class<?> type, Method method) {
        boolean open =
                Modifier.isPublic(method.getModifiers())
                        || Modifier.isProtected(method.getModifiers());
        return open
                && !method.isSynthetic()
                && !EVERY_OBJECT.contains(method.getName())
                && !(type.isEnum() && EVERY_ENUM.contains(method.getName()))
                && !isAccessor(type, method)
                && (Modifier.isStatic(method.getModifiers()) || !overrides(type, method));
    }

    private static boolean isAccessor(Class<?> type, Method method) {
        return type.isRecord()
                && Arrays.stream(type.getRecordComponents())
                        .anyMatch(part -> part.getAccessor().equals(method));
    }

    private static boolean overrides(Class<?> type, Method method) {
        var above = new ArrayList<>(Arrays.asList(type.getInterfaces()));
        if (type.getSuperclass() != null) {
            above.add(type.getSuperclass());
        }
        return above.stream().anyMatch(one -> declares(one, method) || overrides(one, method));
    }

    private static boolean declares(Class<?> type, Method method) {
        return Arrays.stream(type.getDeclaredMethods())
                .anyMatch(other ->
                        other.getName().equals(method.getName())
                                && Arrays.equals(
                                        other.getParameterTypes(), method.getParameterTypes()));
    }

    private static String line(Class<?> type, Method method) {
        var parameters =
                Arrays.stream(method.getParameterTypes()).map(Class::getSimpleName).toList();
        return type.getName().substring(type.getPackageName().length() + 1)
                + "."
                + method.getName()
                + "("
                + String.join(", ", parameters)
                + ")";
    }
}
