// SPDX-License-Identifier: Apache-2.0
/// A complete encoder-cache connector to copy: every item is a file in a folder, named by the
/// digest of its hash. It loads and saves within the step, so it needs no holds, signals or threads
/// of its own; only lookups run in the background.
@NullMarked
package io.kvferry.examples.ecfolder;

import org.jspecify.annotations.NullMarked;
