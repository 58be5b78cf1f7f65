"use strict";
// The page starts as its pictures; this makes it the viewer, or says why not. State: picture, loading, ready, failed.
(() => {
  const colours = {{ colours }};
  const page = document.body.dataset;
  const find = (id) => document.getElementById(id);

  // Kept on the page, so that a test can see what the policy refused.
  document.addEventListener("securitypolicyviolation", (event) => {
    page.violation = `${event.effectiveDirective} ${event.blockedURI}`;
  });

  async function start() {
    const data = window.patientVolumes;
    if (!data) throw new Error("this patient's volumes, the .js file beside this page, could not be read");
    if (!window.niivue) throw new Error("the file viewer/niivue.umd.js of this report could not be read");
    if (!document.createElement("canvas").getContext("webgl2")) throw new Error("this browser has no WebGL 2");
    page.state = "loading"; // gives the canvas its size
    const { Niivue, NVImage, SLICE_TYPE, MULTIPLANAR_TYPE, SHOW_RENDER, DRAG_MODE } = window.niivue;
    const canvas = find("canvas");
    const viewer = new Niivue({
      isRadiologicalConvention: true, // the patient's right on the picture's left
      sagittalNoseLeft: true,
      showAllOrientationMarkers: true,
      fontColor: [1, 1, 1, 1],
      crosshairColor: [0.3, 0.8, 1, 0.8], // a hue that the map's colours do not have
      isOrientCube: true, // the only sign of left and right in 3D
      isClipAllVolumes: true, // the map is cut with the brain
      clipPlaneColor: [0, 0, 0, 0],
      crosshairWidthUnit: "mm", // else as thick as the scan's voxels
      crosshairWidth: 0.7,
      crosshairGap: 6, // what it points at stays visible
      multiplanarShowRender: SHOW_RENDER.ALWAYS,
      multiplanarLayout: MULTIPLANAR_TYPE.GRID,
      multiplanarEqualSize: true,
      multiplanarPadPixels: 6,
      scrollRequiresFocus: true, // else the wheel could not scroll past the canvas
      dragMode: DRAG_MODE.slicer3D, // the right button moves; with "pan" the wheel would zoom
      dragAndDropEnabled: false, // other files do not belong on this patient's page
      clipPlaneHotKey: "",
      cycleClipPlaneHotKey: "",
      viewModeHotKey: "", // the buttons would not know
      loadingText: "",
      logLevel: "error",
    });
    await viewer.attachToCanvas(canvas, true);
    viewer.addColormap("attention", colours);

    const load = async (base64, colormap, low, high) => {
      const image = await NVImage.loadFromBase64({ base64, name: "volume.nii.gz", colormap });
      [image.cal_min, image.cal_max] = [low, high]; // after loading, which would replace an empty range by the data's own
      return image;
    };
    const once = (make) => {
      const made = new Map();
      return async (index) => made.get(index) ?? made.set(index, await make(index)).get(index);
    };
    const scan = once((index) => load(data.scans[index].volume, "gray", 0, 255));
    const map = once(async (index) => {
      const image = await load(data.maps[index].volume, "attention", 255, 255);
      image.colormapType = 1; // below cal_min, which here is everywhere, the opacity is (level / cal_min) squared
      return image;
    });
    const mask = data.tumour && (await load(data.tumour, "gray", 0, 1));

    const [scans, choice, opacity, tumour] = ["scan", "choice", "opacity", "tumour"].map(find);
    data.scans.forEach((one, index) => scans.add(new Option(one.label, String(index))));
    find("outlined").hidden = !mask;
    const chosen = () => Number(choice?.value ?? 0);

    // mm2frac and frac2mm with true: through the scan's own, perhaps oblique, axes.
    const here = () => viewer.frac2mm(viewer.scene.crosshairPos, 0, true).slice(0, 3);
    const goTo = (place_mm) => {
      viewer.scene.crosshairPos = viewer.mm2frac(place_mm, 0, true);
      viewer.createOnLocationChange();
      viewer.drawScene();
    };
    let latest = 0;
    const draw = async () => {
      const turn = ++latest;
      const layers = [await scan(Number(scans.value))];
      if (data.maps.length) layers.push(await map(chosen()));
      if (turn !== latest) return; // something else was chosen meanwhile
      const place_mm = viewer.volumes.length ? here() : null;
      while (viewer.volumes.length > 1) viewer.removeVolumeByIndex(viewer.volumes.length - 1);
      if (viewer.volumes[0] !== layers[0]) {
        viewer.addVolume(layers[0]);
        if (viewer.volumes.length > 1) {
          viewer.setVolume(layers[0], 0); // all others are shown on its voxels
          viewer.removeVolumeByIndex(1);
        }
      }
      for (const layer of layers.slice(1)) viewer.addVolume(layer);
      if (data.maps.length) {
        viewer.setOpacity(1, Number(opacity.value));
        find("even").textContent = data.maps[chosen()].even;
        find("even").hidden = !data.maps[chosen()].even;
      }
      for (const part of document.querySelectorAll(".map")) part.hidden = Number(part.dataset.map) !== chosen();
      page.map = String(chosen());
      page.scan = scans.value;
      if (place_mm) goTo(place_mm);
    };

    // The tumour's border within each plane, by marching squares: a line between the centres of two of the scan's voxels
    // wherever the mask holds one of them and not the other. A surface in 3D would fill the planes that touch it.
    const inMask = mask && mask.img2RAS();
    const border = (axis) => {
      const [right, up] = [0, 1, 2].filter((other) => other !== axis);
      const size = viewer.volumes[0].dimsRAS.slice(1);
      const at = (i, j) => {
        const place = [...viewer.scene.crosshairPos]; // in shares of the scan, like what is returned
        [place[right], place[up]] = [(i + 0.5) / size[right], (j + 0.5) / size[up]];
        return place;
      };
      const voxel = (i, j) => mask.mm2vox(viewer.frac2mm(at(i, j), 0, true), true);
      const [origin, stepRight, stepUp] = [voxel(0, 0), voxel(1, 0), voxel(0, 1)];
      const [nx, ny, nz] = mask.dimsRAS.slice(1);
      const inside = (i, j) => {
        const [x, y, z] = [0, 1, 2].map((k) =>
          Math.round(origin[k] + i * (stepRight[k] - origin[k]) + j * (stepUp[k] - origin[k])),
        );
        return x >= 0 && y >= 0 && z >= 0 && x < nx && y < ny && z < nz && inMask[x + nx * (y + ny * z)] > 0;
      };
      const row = (j) => Array.from({ length: size[right] + 2 }, (_, i) => inside(i - 1, j));
      const lines = [];
      for (let j = -1, below = row(-1), above; j < size[up]; j++, below = above) {
        above = row(j + 1);
        for (let i = -1; i < size[right]; i++) {
          const [a, b, c, d] = [below[i + 1], below[i + 2], above[i + 2], above[i + 1]];
          if (a === b && b === c && c === d) continue;
          const ends = []; // two or four
          if (a !== b) ends.push(at(i + 0.5, j));
          if (b !== c) ends.push(at(i + 1, j + 0.5));
          if (c !== d) ends.push(at(i + 0.5, j + 1));
          if (d !== a) ends.push(at(i, j + 0.5));
          for (let n = 0; n < ends.length; n += 2) lines.push([ends[n], ends[n + 1]]);
        }
      }
      return lines;
    };
    const drawOutlines = () => {
      const sheet = find("lines");
      [sheet.width, sheet.height] = [canvas.width, canvas.height]; // which also clears it
      page.tumour = String(Boolean(mask) && tumour.checked);
      if (page.tumour !== "true") return;
      const pen = sheet.getContext("2d");
      [pen.strokeStyle, pen.lineWidth, pen.lineCap] = ["{{ outline }}", 2 * window.devicePixelRatio, "round"];
      for (const { axCorSag, leftTopWidthHeight, leftTopMM, fovMM } of viewer.screenSlices) {
        if (axCorSag > 2) continue; // the 3D view
        const axis = 2 - axCorSag;
        const [right, up] = [0, 1, 2].filter((other) => other !== axis);
        const [left, top, width, height] = leftTopWidthHeight;
        const pixel = (place) => {
          const shown_mm = viewer.frac2mm(place, 0);
          const [across, upwards] = [(shown_mm[right] - leftTopMM[0]) / fovMM[0], (shown_mm[up] - leftTopMM[1]) / fovMM[1]];
          return [left + across * width, top + (1 - upwards) * height];
        };
        pen.save();
        const part = new Path2D();
        part.rect(left, top, width, height);
        pen.clip(part); // zoomed in, a plane reaches beyond its part of the canvas
        pen.beginPath();
        for (const [from, to] of border(axis)) {
          pen.moveTo(...pixel(from));
          pen.lineTo(...pixel(to));
        }
        pen.stroke();
        pen.restore();
      }
    };
    const drawScene = viewer.drawScene.bind(viewer);
    viewer.drawScene = () => {
      drawScene();
      drawOutlines();
    };

    const views = {
      all: SLICE_TYPE.MULTIPLANAR,
      axial: SLICE_TYPE.AXIAL,
      coronal: SLICE_TYPE.CORONAL,
      sagittal: SLICE_TYPE.SAGITTAL,
      render: SLICE_TYPE.RENDER,
    };
    const buttons = [...document.querySelectorAll("button[data-view]")];
    const show = (wanted) => {
      for (const button of buttons) button.setAttribute("aria-pressed", String(button === wanted));
      viewer.setSliceType(views[wanted.dataset.view]);
    };
    for (const button of buttons) button.addEventListener("click", () => show(button));

    viewer.onLocationChange = (where) => {
      viewer.setClipPlane([viewer.scene.crosshairPos[2] - 0.5, 0, 90]); // opens the 3D view from the top to the crosshair
      const [x, y, z] = here();
      find("position").textContent = `x ${x.toFixed(1)}, y ${y.toFixed(1)}, z ${z.toFixed(1)} mm`;
      if (!data.maps.length) return;
      const level = where.values[1]?.value ?? 0;
      const times = data.top ** ((level / 255) ** 2);
      find("value").textContent = level <= 0 ? "1 or less" : level >= 255 ? `${data.top} or more` : times.toFixed(1);
    };
    const goToPeak = () => goTo(data.maps[chosen()].peak_mm);

    scans.addEventListener("change", draw);
    tumour.addEventListener("change", drawOutlines);
    opacity?.addEventListener("input", () => viewer.setOpacity(1, Number(opacity.value)));
    find("peak")?.addEventListener("click", goToPeak);
    choice?.addEventListener("change", async () => {
      await draw();
      goToPeak();
    });
    const zoom = (times) => {
      const [x, y, z, now] = viewer.scene.pan2Dxyzmm;
      viewer.setPan2Dxyzmm([x, y, z, Math.min(Math.max(now * times, 0.5), 12)]);
      page.zoom = String(viewer.scene.pan2Dxyzmm[3]);
    };
    // Before NiiVue's own listener, which would leaf through the slices.
    canvas.parentElement.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault(); // else the browser zooms the page
        event.stopPropagation();
        zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
      },
      { capture: true, passive: false },
    );
    const step = (right, front, up) => viewer.moveCrosshairInVox(right, front, up);
    const keys = {
      ArrowUp: () => step(0, 0, 1),
      ArrowDown: () => step(0, 0, -1),
      ArrowLeft: () => step(-1, 0, 0),
      ArrowRight: () => step(1, 0, 0),
      t: () => mask && tumour.click(),
      r: () => viewer.setPan2Dxyzmm([0, 0, 0, 1]),
    };
    canvas.addEventListener(
      "keydown",
      (event) => {
        const scanKey = Number(event.key) >= 1 && Number(event.key) <= data.scans.length;
        if (event.ctrlKey || event.metaKey || event.altKey || !(scanKey || keys[event.key])) return;
        event.preventDefault();
        event.stopImmediatePropagation();
        if (scanKey) {
          scans.value = String(Number(event.key) - 1);
          draw();
        } else keys[event.key]();
      },
      true,
    );

    const [view, number] = location.hash.slice(1).split("-"); // so that a link can say #axial or #axial-2
    if (choice && data.maps[Number(number)]) choice.value = String(Number(number));
    await draw();
    if (data.maps.length) goToPeak();
    else goTo(here());
    show(buttons.find((button) => button.dataset.view === view) ?? buttons[0]);
    viewer.setRenderAzimuthElevation(200, 50); // from the front and above, where the cut is seen, a little from the right
    viewer.setScale(1.3); // the 3D view alone; NiiVue leaves room for turning
    viewer.gl.finish();
    canvas.focus({ preventScroll: true }); // so that the wheel leafs at once
    page.state = "ready";
  }

  document.addEventListener("DOMContentLoaded", () => {
    if (!find("canvas")) return;
    start().catch((fault) => {
      page.state = "failed";
      find("fault").textContent = fault.message;
    });
  });
})();
