"use strict";
// The page starts as its picture; this makes it the viewer, or says why not. State: picture, loading, ready, failed.
(() => {
  const page = document.body.dataset;
  const find = (id) => document.getElementById(id);

  // Kept on the page, so that a test can see what the policy refused.
  document.addEventListener("securitypolicyviolation", (event) => {
    page.violation = `${event.effectiveDirective} ${event.blockedURI}`;
  });

  async function start() {
    if (!window.niivue) throw new Error("the file viewer/niivue.umd.js of this report could not be read");
    if (!document.createElement("canvas").getContext("webgl2")) throw new Error("this browser has no WebGL 2");
    page.state = "loading"; // gives the canvas its size
    const { Niivue, NVImage, SLICE_TYPE, MULTIPLANAR_TYPE, SHOW_RENDER, DRAG_MODE } = window.niivue;
    const data = JSON.parse(find("patient-data").textContent);
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
      dragMode: DRAG_MODE.pan,
      dragAndDropEnabled: false, // other files do not belong on this patient's page
      clipPlaneHotKey: "",
      cycleClipPlaneHotKey: "",
      viewModeHotKey: "", // the buttons would not know
      loadingText: "",
      logLevel: "error",
    });
    await viewer.attachToCanvas(find("canvas"), true);
    viewer.addColormap("attention", data.colours);
    const scan = await NVImage.loadFromBase64({ base64: data.scan, name: "scan.nii.gz", colormap: "gray" });
    [scan.cal_min, scan.cal_max] = [0, 255]; // after loading, which would replace an empty range by the data's own
    viewer.addVolume(scan);

    const opacity = find("opacity");
    const fade = () => viewer.setOpacity(1, Number(opacity.value));
    opacity.addEventListener("input", fade);

    let chosen = 0;
    const load = async (index) => {
      const map = await NVImage.loadFromBase64({ base64: data.maps[index].map, name: "map.nii.gz", colormap: "attention" });
      if (index !== chosen) return; // another was chosen meanwhile
      [map.cal_min, map.cal_max] = [255, 255]; // as above
      map.colormapType = 1; // below cal_min, which here is everywhere, the opacity is (level / cal_min) squared
      if (viewer.volumes.length > 1) viewer.removeVolumeByIndex(1);
      viewer.addVolume(map);
      fade();
      for (const part of document.querySelectorAll(".map")) part.hidden = Number(part.dataset.map) !== index;
      page.map = String(index);
    };

    const views = {
      all: SLICE_TYPE.MULTIPLANAR,
      axial: SLICE_TYPE.AXIAL,
      coronal: SLICE_TYPE.CORONAL,
      sagittal: SLICE_TYPE.SAGITTAL,
      render: SLICE_TYPE.RENDER,
    };
    const buttons = [...document.querySelectorAll("button[data-view]")];
    const show = (chosen) => {
      for (const button of buttons) button.setAttribute("aria-pressed", String(button === chosen));
      viewer.setSliceType(views[chosen.dataset.view]);
    };
    for (const button of buttons) button.addEventListener("click", () => show(button));

    // mm2frac and frac2mm with true: through the scan's own, perhaps oblique, axes.
    const goToPeak = () => {
      viewer.scene.crosshairPos = viewer.mm2frac(data.maps[chosen].peak_mm, 0, true);
      viewer.createOnLocationChange();
      viewer.drawScene();
    };
    viewer.onLocationChange = (where) => {
      viewer.setClipPlane([viewer.scene.crosshairPos[2] - 0.5, 0, 90]); // opens the 3D view from the top to the crosshair
      const [x, y, z] = viewer.frac2mm(viewer.scene.crosshairPos, 0, true);
      const level = where.values[1]?.value ?? 0;
      const times = data.top ** ((level / 255) ** 2);
      const value = level <= 0 ? "1 or less" : level >= 255 ? `${data.top} or more` : times.toFixed(1);
      find("position").textContent = `x ${x.toFixed(1)}, y ${y.toFixed(1)}, z ${z.toFixed(1)} mm`;
      find("value").textContent = value;
    };
    find("peak").addEventListener("click", goToPeak);

    const choice = find("choice"); // none where there is one map
    const [view, number] = location.hash.slice(1).split("-"); // so that a link can say #axial or #axial-2
    if (choice && data.maps[Number(number)]) choice.value = String(Number(number));
    const choose = async () => {
      chosen = Number(choice?.value ?? 0);
      await load(chosen);
      goToPeak();
    };
    choice?.addEventListener("change", choose);
    await choose();
    show(buttons.find((button) => button.dataset.view === view) ?? buttons[0]);
    viewer.setRenderAzimuthElevation(200, 50); // from the front and above, where the cut is seen, a little from the right
    viewer.setScale(1.3); // the 3D view alone; NiiVue leaves room for turning
    viewer.gl.finish();
    page.state = "ready";
  }

  document.addEventListener("DOMContentLoaded", () => {
    start().catch((fault) => {
      page.state = "failed";
      find("fault").textContent = fault.message;
    });
  });
})();
