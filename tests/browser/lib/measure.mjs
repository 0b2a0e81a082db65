// How smooth a page is: its longest task, and the longest time without a frame.

/** Begins to measure. */
export const measure = (page) =>
  page.evaluate(() => {
    globalThis.smooth = { tasks: [], gap: 0, frames: 0 };
    new PerformanceObserver((list) => globalThis.smooth.tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: 'longtask', buffered: false });
    let last = performance.now();
    const frame = (now) => {
      globalThis.smooth.gap = Math.max(globalThis.smooth.gap, now - last);
      last = now;
      globalThis.smooth.frames++;
      globalThis.smooth.going = requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });

/** Ends it. Tasks of 50 ms and more are told one by one; shorter ones are none of anybody's concern. */
export const measured = (page) =>
  page.evaluate(() => {
    cancelAnimationFrame(globalThis.smooth.going);
    const { tasks, gap, frames } = globalThis.smooth;
    return { longest: Math.max(0, ...tasks), tasks: tasks.length, gap: Math.round(gap), frames };
  });

function tell(what, { longest, tasks, gap, frames }) {
  console.log(`${what}: longest main-thread task ${longest ? `${Math.round(longest)} ms (${tasks} of 50 ms or more)` : 'under 50 ms'}, longest time between frames ${gap} ms, ${frames} frames`);
}

const MOST_TRIES = 3;

/** Measures once, and again if it was too slow: on a busy machine somebody else may have been. Gives the best. */
export async function smoothly(what, limit, run) {
  let best;
  for (let tries = 0; tries < MOST_TRIES && !(best?.longest < limit); tries++) {
    // Whoever kept the machine busy may be done by then.
    if (tries) await new Promise((done) => setTimeout(done, 1000));
    const smooth = await run();
    tell(what, smooth);
    if (!best || smooth.longest < best.longest) best = smooth;
  }
  return best;
}
